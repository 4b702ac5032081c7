"""The formats in which streams are written: server-sent events and JSON."""
