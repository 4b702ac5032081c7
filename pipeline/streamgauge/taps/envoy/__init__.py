"""The Envoy tap: receives what Envoy reports of its traffic over gRPC. It is never in the traffic's path.

protobuf.py   the wire format of protocol buffers
messages.py   Envoy's messages: those of its external processor, and the entries of its access log
endings.py    an access log entry -> how the exchange ended
exchange.py   one request and its response, as the recorder gets it
joining.py    finds the exchange of an access log entry, and ends exchanges whose entry does not come
service.py    the two gRPC services
settings.py   the settings of the process
process.py    the process: `python -m streamgauge.taps.envoy.process`
"""
