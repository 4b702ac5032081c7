"""The relay, a process of the proxy tap (`python -m streamgauge.taps.proxy`). It forwards HTTP/1.1, responses byte for byte.

__main__.py       the process: reads its settings (relay_settings.py), writes `ready`, drains on SIGTERM
relay.py          all connections of one relay
acceptor.py       accepts clients, also for hung relays; limits.py: limits on clients
client.py         a client's connection; client_access.py: which clients may use the proxy
reader.py         a client's bytes -> requests
request.py        a request's upstream and its head there; climbing.py: paths that would leave the upstream's base path
exchange.py       one request and its response; websocket_exchange.py: one that began with the handshake of a WebSocket
websocket.py      which handshakes of a WebSocket are forwarded, and which answers accept them
capture_gate.py   decides when the capture of an exchange starts (recorder/exchange_capture.py)
upstream.py       connections to upstreams; each belongs to one client's connection
tls.py            TLS to upstreams
response.py       the end of a response, and whether its connection may be used again
pump_handle.py    the pump (native/), which moves the middle of responses
wire.py           writes to a connection's socket, and what the relay asks it
refusals.py       the relay's own responses: their bytes, counts and lines in the log
"""
