"""The formats in which streams are written.

reader.py          what every reader of a framing shares: its contract, and the bounded content of an event
sse.py             server-sent events
aws_event_stream.py   AWS's binary event stream
websocket.py       the frames of one direction of a WebSocket
json_lines.py json_array.py   a JSON value a line; an array whose elements come one by one
json_text.py       JSON text -> values; cut_json.py: of an object whose middle is missing
json_rpc.py        calls of JSON-RPC (MCP, A2A): method and tool of a request, errors in an answer
json_validator.py  whether text that comes in pieces is valid JSON
"""
