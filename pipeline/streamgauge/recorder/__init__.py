"""The recorder: makes segments, bundles and rows of the spool from what taps report.

For taps:

protocol.py   the messages from taps
exchange_capture.py   reports one exchange; all taps use it
client.py     buffers messages and sends them; loop_client.py: on an asyncio event loop

The process:

recorder.py   messages -> segments, sans-IO; capture.py: one stream
request.py    facts of a request; installation_key.py: the key of its digests
response.py response_head.py events.py   head, body and events of a response, masked
budget.py     bounds the buffered bytes
bundler.py    segments -> bundles: slots, numbers, heartbeats, farewells
spool_writer.py   bundles -> the spool, in order
process.py    the process around it: `python -m streamgauge.recorder.process`; batches.py: its connections
credit.py     the processing time that streams which are behind may use
"""
