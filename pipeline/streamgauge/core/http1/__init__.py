"""HTTP/1 responses. Recorder, relay and packet tap share this one reader.

response.py  a response's bytes -> head, body, end; head.py: heads; framing.py: how a body ends, and where
body_position.py   the position within a body, which the relay's pump needs
body.py      a body without its content codings; coding_members.py: the codings
content_type.py    whether a response is an event stream
"""
