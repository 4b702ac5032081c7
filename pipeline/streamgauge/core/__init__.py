"""The core: pure code without input or output. It makes records of the bytes that taps capture.

A read passes these packages in this order:

capture/     segments and bundles, which taps send, and their encoding
http1/       a response's bytes -> its head, its body's content, its end; for recorder, relay and packet tap
formats/     server-sent events and JSON
dialects/    one file for each wire format
masking/     events -> events without their text
assembly/    segments -> state of a stream -> record, for many streams

They use these modules:

allowlist.py       masking's decision: whether a member of an event is kept, by its path and the kind of its value
safe_values.py     which values look like an id, a code or a name; the same rules for values that a record shows
usage.py           the token counts that a stream reports; usage_parts.py: what a response bills apart from tokens
modalities.py      tokens by modality (text, image, audio), as a usage object reports them
token_kinds.py     token counts as disjoint kinds, whose sum is the whole
reported_cost.py   the cost that a response itself reports
outcome.py         finish reasons, and how a stream ended
resumption.py      the rules of resumed streams: requests, events, records
record.py          the record as the core makes it
limits.py          when streams are closed without an end, and what counts as a stall
toml_text.py       TOML of an operator, with one error for all faults
"""
