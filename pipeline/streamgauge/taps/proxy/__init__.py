"""The proxy tap's relay: HTTP/1.1 in and out, byte for byte. A process of its own: `python -m streamgauge.taps.proxy`.

__main__.py   the process: settings in, `ready` out, drained by SIGTERM
relay.py      all connections of one relay; acceptor.py: accepts them, for relays that do not as well; limits.py: how many
client.py     a client's connection; reader.py and request.py: its requests, checked and written again
exchange.py   one request and its answer; response.py: where the answer ends
upstream.py   connections to upstreams, each of one client's connection
tls.py        certificates, on both sides
pump_handle.py   the pump (native/), which moves the middle of responses; body_position.py: where in a body it is
error_responses.py   the few responses that are ours; refusals.py: counts them
capture_gate.py capture.py outbox.py   what the recorder is told of an exchange, without waiting
"""
