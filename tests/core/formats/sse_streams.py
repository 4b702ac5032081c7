"""Streams of bytes at the edges of the SSE grammar, and the events that a decoder makes of their pieces."""

import msgspec
from hypothesis import strategies as st

from streamgauge.core.formats.sse import MAX_EVENT_BYTES, Event, SseDecoder

# Fragments from which streams are made: line ends, field names and marks at which parsers fail.
FRAGMENTS = st.sampled_from(
    [b"data", b"data: ", b"data:", b":", b" ", b"  ", b"event: ", b"event", b"id: ", b"id", b"retry: ", b"error: ",
     b"x", b"0",
     b"12", b"\n", b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"\n\r", b"\0", b"\xef\xbb\xbf", b"\xef", b"\xbb",
     b"\xbf", b"{",
     b"[DONE]", b"}", b"\xe2\x82\xac", b"\xe2\x82", b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\xff", b"\xed\xa0\x80",
     b"\xc0\xaf",
     b"data: {}\n\n", b"data: a\n\n", b"event: e\ndata: b\n\n", b": c\n\n", b"streamgauge-oversized",
     b"streamgauge-oversized\n",
     b"unknown: y\n"]
)  # fmt: skip
STREAMS = st.lists(st.one_of(FRAGMENTS, FRAGMENTS, FRAGMENTS, st.binary(max_size=4)), max_size=40).map(b"".join)


def decode(pieces: list[bytes], cap: int = MAX_EVENT_BYTES) -> tuple[list[Event], Event | None]:
    """The events, without what is kept of the data of those over the cap."""
    events, last = decode_with_cuts(pieces, cap)
    return list(map(without_cut, events)), None if last is None else without_cut(last)


def without_cut(event: Event) -> Event:
    return msgspec.structs.replace(event, cut=None)


def decode_with_cuts(pieces: list[bytes], cap: int) -> tuple[list[Event], Event | None]:
    decoder = SseDecoder(cap)
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.finish()
