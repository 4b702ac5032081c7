"""HTTP/1 responses. Recorder, relay and packet tap share this one reader.

response.py  a response's bytes -> head, body, end
head.py      heads, and whether one names an event stream
framing.py   where a body ends, and the position within it, which the relay's pump needs
body.py      a body without its content codings; coding_members.py: the codings
"""
