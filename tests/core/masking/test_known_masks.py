"""What was learnt of a stream's masking changes how fast it is masked, and nothing else."""

import random
from collections.abc import Iterator, Sequence

import pytest
from bench.wires import wire
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.dialects import DIALECTS, endpoint_of
from streamgauge.core.formats.sse import write_event
from streamgauge.core.masking import known_masks
from streamgauge.core.masking.known_masks import KnownMasks
from streamgauge.core.masking.masker import Masker
from streamgauge.core.masking.shared_masks import forget_all
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from tests.core.assembly.altered import alter, damage
from tests.vectors.load import vectors

NAMES = [dialect.name for dialect in DIALECTS]
NO_LIMIT = 1 << 40


def written(pieces: Sequence[bytes], path: str | None, tries: int) -> list[bytes]:
    """What is written of each piece, and at the end, with so many tries to learn; nothing was learnt of other streams."""
    forget_all()
    before, known_masks.MAX_TRIES = known_masks.MAX_TRIES, tries
    try:
        events = MaskedEvents(Masker(path, full=False), Budget(NO_LIMIT))
        return [*(events.feed(piece) for piece in pieces), events.finish()]
    finally:
        known_masks.MAX_TRIES = before


def in_pieces(blocks: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    """Several events a piece, one, or a part of one."""
    at = 0
    while at < len(blocks):
        size = chance.choice((1, 1, 1, 1, 2, 5, 16))
        piece = b"".join(blocks[at : at + size])
        cut = chance.randrange(len(piece) + 1) if chance.random() < 0.3 else 0
        yield from (piece[:cut], piece[cut:]) if cut else (piece,)
        at += size


def same(blocks: Sequence[bytes], path: str | None, seed: int) -> None:
    pieces = list(in_pieces(blocks, random.Random(seed)))
    assert written(pieces, path, 10**6) == written(pieces, path, 0)


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("name", NAMES)
def test_a_stream_of_each_dialect(name: str, ends: bytes) -> None:
    one = wire(name, 120)
    for seed in range(8):
        same([event.replace(b"\n", ends) for event in one.events], one.path or None, seed)


def test_every_vector() -> None:
    for vector in vectors():
        if vector.is_stream:
            blocks = [block + b"\n\n" for block in vector.body.replace(b"\r\n", b"\n").split(b"\n\n")]
            same(blocks, endpoint_of(vector.method, vector.target), len(vector.body))


@pytest.mark.parametrize("name", NAMES)
def test_nearly_all_deltas_are_masked_without_a_look(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    usual = Masker.event
    monkeypatch.setattr(Masker, "event", lambda self, event: looked.append(event) or usual(self, event))  # type: ignore[func-returns-value]
    one = wire(name, 200)
    written(one.events, one.path or None, known_masks.MAX_TRIES)
    assert len(looked) < 25


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", NAMES)
def test_a_burst_that_is_cut_anywhere_is_masked_without_a_look(
    name: str, ends: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of a full socket buffer: each begins and ends inside of an event."""
    looked = []
    usual = Masker.event
    monkeypatch.setattr(Masker, "event", lambda self, event: looked.append(event) or usual(self, event))  # type: ignore[func-returns-value]
    one = wire(name, 400)
    whole = b"".join(one.events).replace(b"\n", ends)
    pieces = [whole[at : at + 7_001] for at in range(0, len(whole), 7_001)]
    masked = b"".join(written(pieces, one.path or None, known_masks.MAX_TRIES))
    assert len(looked) < 25 + 2 * len(pieces)
    assert masked == b"".join(written([whole], one.path or None, 0))


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_a_damaged_stream_is_masked_the_same(data: st.DataObject, name: str, seed: int) -> None:
    one = wire(name, 40)
    same(damage(data.draw, one.events), one.path or None, seed)  # type: ignore[arg-type]


@settings(max_examples=400, deadline=None)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_what_says_otherwise_in_between_is_masked_the_same(data: st.DataObject, name: str, seed: int) -> None:
    one = wire(name, 40)
    same([write_event(event) for event in alter(data.draw, one)], one.path or None, seed)  # type: ignore[arg-type]


def test_another_dialect_forgets_what_was_learnt() -> None:
    """A chat path that brings Anthropic's events, and the other way round, in one stream."""
    chat, messages = wire("openai-chat", 30).events, wire("anthropic-messages", 30).events
    for seed in range(8):
        same([*chat[:-1], *messages, *chat], "/chat/completions", seed)


CHUNK = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%b"}}],"secret":"%b","n":%d}\n\n'


def test_values_are_masked_by_their_place() -> None:
    """What no path names stays masked, whatever it is; text becomes as many code points."""
    blocks = [CHUNK % (b"ab" * n, b"key-%d" % n, n) for n in range(1, 20)]
    blocks.append(CHUNK % (rb"\u00e9\n".replace(rb"\\", b"\\") + "\u00fc".encode(), rb"\"quoted\"", 7))
    masked = b"".join(written(blocks, "/chat/completions", known_masks.MAX_TRIES))
    assert b"key" not in masked
    assert b"quoted" not in masked
    assert masked.count(b'"masked_2":"masked"') == len(blocks)
    assert masked.endswith(b'"content":"xxx"}}],"masked_2":"masked","masked_3":0}\n\n')


def test_a_wrong_escape_in_what_is_masked_makes_the_event_no_json() -> None:
    blocks = [CHUNK % (b"ab" * n, b"key-%d" % n, n) for n in range(1, 12)]
    for wrong in (rb"\3", rb"\u12", rb"a\ "):
        same([*blocks, CHUNK % (b"c", wrong, 5), *blocks], "/chat/completions", 0)


def test_what_cannot_be_learnt_is_tried_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(known_masks, "learn_mask", lambda one, other: tried.append(one))
    blocks = [CHUNK % (b"a" * n, b"b", n) for n in range(1, 200)]
    written(blocks, "/chat/completions", known_masks.MAX_TRIES)
    assert len(tried) == known_masks.MAX_TRIES


def test_what_is_kept_is_bounded() -> None:
    """Many kinds of events by turns: only the latest are remembered."""
    events = [b'data: {"id":"c","choices":[],"kind_%d":"%b"}\n\n' % (n % 40, b"x" * n) for n in range(1, 400)]
    masks = MaskedEvents(Masker("/chat/completions", full=False), Budget(NO_LIMIT))
    for event in events:
        masks.feed(event)
    known = masks._masker._known
    assert isinstance(known, KnownMasks)
    assert len(known._forms) <= known_masks.MAX_FORMS
    assert len(known._seen) <= known_masks.MAX_FORMS
