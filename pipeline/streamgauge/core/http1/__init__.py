"""HTTP/1 responses: head, framing of the body, content codings."""
