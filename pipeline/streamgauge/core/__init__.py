"""The core: pure code without input or output. It makes records of the bytes that taps capture.

capture/     segments and bundles, and their encoding
http1/       a response's bytes -> its head, its body's content, its end; for recorder, relay and packet tap
formats/     server-sent events and JSON
dialects/    one file for each wire format
masking/     events -> events without their text
assembly/    segments -> state of a stream -> record, for many streams
allowlist.py safe_values.py   which members of an event are kept, and which values
usage.py outcome.py   token counts, and how a stream ended
resumption.py   the rules of resumed streams: requests, events, records
limits.py    when streams are closed without an end, and what counts as a stall
record.py    the record as the core makes it
"""
