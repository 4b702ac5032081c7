"""The relay, a process of the proxy tap (`python -m streamgauge.taps.proxy`). It forwards HTTP/1.1, responses byte for byte.

__main__.py   the process: reads its settings, writes `ready`, drains on SIGTERM
relay.py      all connections of one relay; acceptor.py: accepts clients, also for hung relays; limits.py: limits on clients
client.py     a client's connection; reader.py and request.py: parse, check and rewrite its requests
exchange.py   one request and its response; response.py: the end of the response, and whether to reuse the connection
upstream.py   connections to upstreams; each belongs to one client's connection
tls.py        certificates, on both sides
pump_handle.py   the pump (native/), which moves the middle of responses
refusals.py   the relay's own responses: their bytes, counts and lines in the log
wire.py       writes to a connection's socket, and what the relay asks it
capture_gate.py   decides when the capture of an exchange starts (recorder/exchange_capture.py)
"""
