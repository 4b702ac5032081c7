"""The pure core: captured reads in, records out.

No clock, no I/O, no logging, no asyncio: times arrive inside the data. `tests/architecture` holds that line.

    segments.py   what a tap captured: the format between taps and assembler
    sse.py        bytes -> events, and back
    http_head.py framing.py body.py   a response's bytes -> its head, its body's content
    masking.py known_masks.py mask_learning.py mask_forms.py   events -> events without their text
    dialects/     one file a wire format
    stream.py     one stream: segments -> state -> record
    steady.py learning.py envelope.py forms.py   deltas that are like others, taken without decoding them
    closing.py    which output of an event is new, and which repeats what deltas said
    legs.py       which stream a leg continues
    assembler.py  many streams: bundles -> finished records
    record.py     the record as the core makes it
"""
