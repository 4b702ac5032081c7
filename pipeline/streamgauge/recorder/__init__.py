"""The recorder: makes segments, bundles and rows of the spool from what taps report.

protocol.py   the messages from taps
recorder.py   messages -> segments, sans-IO; capture.py: one stream
request.py    facts of a request; installation_key.py: the key of its digests
response.py response_head.py events.py   head, body and events of a response, masked
budget.py     bounds the bytes that are held
bundler.py    segments -> bundles: slots, numbers, heartbeats, farewells
spool_writer.py   bundles -> the spool, in order
process.py    the process around it: `python -m streamgauge.recorder.process`; batches.py: its connections
credit.py     the processing time that streams which are behind may use
"""
