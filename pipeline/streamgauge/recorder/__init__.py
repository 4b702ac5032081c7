"""The recorder: what taps tell becomes segments, bundles, and rows of the spool.

protocol.py   what taps tell it
recorder.py   messages -> segments, sans-IO; capture.py: one stream
request.py    what a request says; installation_key.py: the key of its digests
response.py response_head.py events.py   head, body and events of a response, masked
budget.py     the bytes that may be held
bundler.py    segments -> bundles: slots, numbers, heartbeats, farewells
spool_writer.py   bundles -> the spool, in order
process.py    the process around it: `python -m streamgauge.recorder.process`; batches.py: its connections
credit.py     the time that streams which are behind may have for their turns
"""
