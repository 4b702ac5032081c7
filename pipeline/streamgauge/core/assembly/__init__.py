"""Makes the record of a stream from its captured segments.

assembler.py   bundles of a partition -> records; tap_instances.py: which bundles were seen; reorder_buffer.py: what waits
stream.py      segments of one stream -> its state; plain_deltas.py: the same for many chunks at once
event_sink.py  what a dialect reports of an event -> the state; repeated_output.py: output that comes more than once
state.py       the state of a stream; state_codec.py: as bytes; state_size.py: how large it may get
timing.py      first times, gaps, stalls, bursts; pace.py: time per output token; silence.py: silent streams
record_builder.py   state -> record
"""
