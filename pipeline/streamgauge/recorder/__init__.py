"""The recorder: makes segments, bundles and rows of the spool from what taps report.

For taps:

exchange_capture.py   reports one exchange; all taps use it
websocket_capture.py  reports one WebSocket; call_capture.py: one call of JSON-RPC
protocol.py           the messages to the recorder
client.py             buffers messages and sends them; loop_client.py: on an asyncio event loop
fail_open.py          a bug in a capture ends the capture, and not the traffic
fair_shares.py        which new streams are captured while the recorder is behind
tenant_headers.py     checks that an application and its agent read the tenant from the same header
stream_id.py          the ids of streams

In the collector:

process.py            everything between the messages of taps and the spool; batches.py: its connections
recorder.py           messages -> segments, sans-IO
capture.py            the segments of one stream
websocket_session.py  a WebSocket -> streams, one a response; websocket_events.py: what its events are routed by
call_session.py       a call of JSON-RPC -> its duration and error
request.py            facts of a request; installation_key.py: the key of its digests
response.py           the reads of a response: events.py masks its events, response_head.py reads its head
content_kind.py       how the events of a content are framed; framed_events.py masks those that are no server-sent events
rate_limit.py         rate limits in a response's head
uncaptured.py         why a response is not captured
budget.py             bounds the buffered bytes of all streams; decoder_memory.py: those of decoders
bundler.py            segments -> bundles: slots, numbers, heartbeats, farewells
spool_writer.py       bundles -> the spool, in order; write_refusals.py: reports a disk that refuses writes
"""
