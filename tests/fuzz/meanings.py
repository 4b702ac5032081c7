"""What must hold for masking and usage with any JSON: masking twice equals masking once, and masked usage has the same
numbers.
"""

import zlib

import msgspec

from streamgauge.core.allowlist import Kind, Spec, apply_allowlist
from streamgauge.core.dialects import BY_NAME, DIALECTS
from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.core.formats.sse import Event, SseDecoder, write_event
from streamgauge.core.masking.masker import Masker
from streamgauge.core.record import Usage
from streamgauge.core.safe_values import whole_number
from streamgauge.core.usage import UsageState, normalised, take
from tests.fuzz.drawn import Drawn
from tests.fuzz.hostile import WORD
from tests.vectors.load import blocks

PATHS = (None, *sorted({path for dialect in DIALECTS for path in dialect.paths}))
# Replaces text that is not JSON.
UNPARSABLE = b"masked"
# Limit of a stream's merged usage in its state (bytes): the largest of a provider has about 1 KiB.
MAX_RAW_BYTES = 16 * 1024


def check_masker(data: bytes) -> None:
    """Masks the events of a stream; asserts that only label characters are left, and that masking again changes nothing."""
    drawn = Drawn(data)
    path, body = drawn.one_of(PATHS), drawn.rest()
    masker, again = Masker(path, full=False), Masker(path, full=False)
    for event in SseDecoder().feed(body):
        masked = masker.event(event)
        content = write_event(masked)
        assert WORD.encode() not in content
        assert content.isascii(), "text is left"
        assert SseDecoder().feed(content) == [_as_read(masked)]
        assert (masked.data is None, masked.comments, masked.retry) == (event.data is None, event.comments, event.retry)
        assert again.event(masked) == masked
    for block in blocks(body):
        _check_body(path, block)


def _as_read(masked: Event) -> Event:
    """A masked event as its reader sees it: bare text that was not JSON is still not bare JSON, and not an error either
    way.
    """
    return masked if masked.bare != UNPARSABLE else msgspec.structs.replace(masked, bare=None)


def _check_body(path: str | None, raw: bytes) -> None:
    """The same for a whole response."""
    masked = Masker(path, full=False).body(raw)
    assert (masked is None) == (parse(raw) is UNPARSED)
    if masked is not None:
        assert masked.isascii()
        assert WORD.encode() not in masked
        assert Masker(path, full=False).body(masked) == masked


def check_usage(data: bytes) -> None:
    """Usage objects, one after another: the same numbers from masked ones, in any dialect, and a bounded state."""
    drawn = Drawn(data)
    rules = drawn.one_of(DIALECTS).usage
    state, masked = UsageState(), UsageState()
    for line in drawn.rest().split(b"\n"):
        given = parse(line)
        if given is UNPARSED:
            continue
        final, placeholder = bool(zlib.crc32(line) & 1), bool(zlib.crc32(line) & 2)
        before = msgspec.msgpack.encode(state)
        take(state, rules, given, final=final, placeholder=placeholder)
        take(masked, rules, apply_allowlist(rules.spec, given), final=final, placeholder=placeholder)
        assert given is not None or msgspec.msgpack.encode(state) == before, "null gives no numbers"
    _check_kept(rules.spec, state.raw)
    assert normalised(masked, rules) == normalised(state, rules)
    check_numbers(normalised(state, rules))
    kept = msgspec.msgpack.encode(state)
    assert len(kept) <= MAX_RAW_BYTES, f"usage of {len(kept)} bytes in the state"
    assert normalised(msgspec.msgpack.decode(kept, type=UsageState), rules) == normalised(state, rules)


def _check_kept(spec: Spec, raw: object) -> None:
    """Counts in the merged object are counts."""
    if isinstance(spec, dict) and isinstance(raw, dict):
        assert set(raw) <= set(spec)
        for key, value in raw.items():
            assert spec[key] is not Kind.COUNT or whole_number(value) == value
            _check_kept(spec[key], value)


def check_numbers(usage: Usage) -> None:
    """The record's numbers are whole and not negative, and add up or say that they do not."""
    numbers = [value for name, value in msgspec.structs.asdict(usage).items() if name.endswith("_tokens")]
    assert all(value is None or (type(value) is int and value >= 0) for value in numbers)
    known = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    if usage.identity_failed is None and None not in known:
        assert (known[0] or 0) + (known[1] or 0) == known[2]
    msgspec.json.encode(usage)


def usage_seeds() -> list[bytes]:
    """Usage objects of the vectors, as lines, for each dialect."""
    found: dict[str, list[bytes]] = {dialect.name: [] for dialect in DIALECTS}
    from tests.vectors.load import vectors

    for vector in vectors():
        raw = vector.record.get("usage", {}).get("raw")
        if isinstance(raw, dict) and vector.dialect in found:
            found[vector.dialect].append(msgspec.json.encode(raw))
    order = [dialect.name for dialect in DIALECTS]
    return [bytes((order.index(name),)) + b"\n".join(lines[:8]) for name, lines in found.items() if name in BY_NAME]
