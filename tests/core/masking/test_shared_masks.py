"""What other streams taught changes how fast a stream is masked, and nothing else."""

import json
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from bench.wires import Wire, wire
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.core.dialects import DIALECTS
from streamgauge.core.formats.sse import Event, write_event
from streamgauge.core.masking import known_masks, shared_masks
from streamgauge.core.masking.masker import Masker
from streamgauge.core.masking.shared_masks import forget_all
from streamgauge.recorder.budget import Budget
from streamgauge.recorder.events import MaskedEvents
from tests.core.assembly.altered import alter, damage
from tests.core.masking.test_known_masks import in_pieces

NAMES = [dialect.name for dialect in DIALECTS]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that were masked in the ordinary way, from here on."""
    seen: list[Event] = []
    usual = Masker.event

    def event(self: Masker, one: Event) -> Event:
        seen.append(one)
        return usual(self, one)

    monkeypatch.setattr(Masker, "event", event)
    return seen


def masked(pieces: Sequence[bytes], path: str | None) -> list[bytes]:
    """One stream: what becomes of each piece, and of what is pending at the end."""
    events = MaskedEvents(Masker(path, full=False), Budget(1 << 40))
    return [*(events.feed(piece) for piece in pieces), events.finish()]


def alone(pieces: Sequence[bytes], path: str | None) -> list[bytes]:
    """The same, and no other stream taught it anything."""
    before, known_masks.MAX_BORROWS = known_masks.MAX_BORROWS, 0
    try:
        return masked(pieces, path)
    finally:
        known_masks.MAX_BORROWS = before


def of_stream(one: Wire, number: int) -> list[bytes]:
    """The stream once more, with ids of its own."""
    return [one.of_stream(event, number) for event in one.events]


@pytest.mark.parametrize("name", NAMES)
def test_a_third_stream_needs_hardly_a_look(name: str, looked: list[Event]) -> None:
    forget_all()
    one = wire(name, 30)
    for number in (1, 2, 3, 4):
        expected = alone(of_stream(one, number), one.path or None)
        looked.clear()
        assert masked(of_stream(one, number), one.path or None) == expected
    # Its first event, until which nobody knows its dialect; and those in which nothing tells two streams apart but text.
    assert len(looked) <= 6


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2**32))
def test_streams_that_are_damaged_or_say_otherwise_are_masked_as_alone(
    data: st.DataObject, name: str, seed: int
) -> None:
    """Whatever the streams before it were: they teach, and it may be of what they taught, or nearly."""
    forget_all()
    chance = random.Random(seed)
    one = wire(name, 12)
    for number in range(5):
        blocks = of_stream(one, number)
        kind = data.draw(st.sampled_from(("as it is", "damaged", "otherwise")))
        if kind == "damaged":
            blocks = damage(data.draw, blocks)  # type: ignore[arg-type]
        elif kind == "otherwise":
            blocks = [write_event(event) for event in alter(data.draw, Wire(name, one.path, blocks))]  # type: ignore[arg-type]
        pieces = list(in_pieces(blocks, chance))
        assert masked(pieces, one.path or None) == alone(pieces, one.path or None)


def test_streams_of_all_dialects_by_turns_are_masked_as_alone() -> None:
    forget_all()
    chance = random.Random(7)
    for number in range(12):
        for name in chance.sample(NAMES, len(NAMES)):
            one = wire(name, 12)
            pieces = list(in_pieces(of_stream(one, number), chance))
            path = chance.choice((one.path, None, "/chat/completions"))
            assert masked(pieces, path or None) == alone(pieces, path or None)


# --- what may be a hole, and what may not ---------------------------------------------------------------------------


def chat(stream: str, text: str, **more: object) -> bytes:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    chunk = {"id": f"chatcmpl-{stream}", "object": "chat.completion.chunk", "choices": choices, **more}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def after(streams: Iterator[list[bytes]], last: list[bytes], looked: list[Event]) -> int:
    """How many events of the last stream need a look; it is masked as it would be alone."""
    forget_all()
    for one in streams:
        masked(one, "/chat/completions")
    expected = alone(last, "/chat/completions")
    looked.clear()
    assert masked(last, "/chat/completions") == expected
    return len(looked)


def streams(more: Callable[[int, int], dict[str, object]]) -> Iterator[list[bytes]]:
    """Three of them, with these members besides, by the numbers of stream and event."""
    for stream in (1, 2, 3):
        yield [chat(f"a{stream}", "word" * at, **more(stream, at)) for at in (1, 2, 3)]


def test_ids_and_numbers_of_a_stream_are_holes(looked: list[Event]) -> None:
    def more(stream: int, at: int) -> dict[str, object]:
        return {"created": 1_700_000_000 + stream, "model": f"m-{stream}", "secret": 17 * stream}

    last = [chat("b7", "other", **more(9, at)) for at in range(6)]
    assert after(streams(more), last, looked) == 1


def test_a_string_that_is_masked_is_a_hole_only_if_it_changes_within_a_stream(looked: list[Event]) -> None:
    last = [chat("b7", "other", pad=f"{at}") for at in range(6)]
    assert after(streams(lambda stream, at: {"pad": f"p{stream}{at}"}), last, looked) == 1
    constant = [chat("b7", "o" * at, pad="q9") for at in range(1, 7)]
    assert after(streams(lambda stream, at: {"pad": f"p{stream}"}), constant, looked) == 2  # as alone


def test_what_is_no_id_is_no_hole(looked: list[Event]) -> None:
    """A finish reason is kept by what it says: another one is looked at."""
    forget_all()
    for stream, reason in (("a1", "stop"), ("a2", "length"), ("a3", "stop")):
        end = chat(stream, "x", more=1).replace(b'"finish_reason": null', b'"finish_reason": "%b"' % reason.encode())
        masked([chat(stream, "first"), end], "/chat/completions")
    end = chat("a4", "x", more=1).replace(b'"finish_reason": null', b'"finish_reason": "content_filter"')
    looked.clear()
    assert b'"content_filter"' in b"".join(masked([chat("a4", "first"), end], "/chat/completions"))
    assert any(b"content_filter" in (event.data or b"") for event in looked)


def test_a_number_that_changes_within_a_stream_is_found_out(looked: list[Event]) -> None:
    last = [chat("b7", "word" * at, n=1000 + at) for at in range(1, 9)]
    assert after(streams(lambda stream, at: {"n": 10 * stream + at}), last, looked) == 1


def test_nothing_holds_before_the_dialect_is_known(looked: list[Event]) -> None:
    """The first event is looked at whatever others taught: by it the dialect is known."""
    forget_all()
    for stream in ("a1", "a2", "a3"):
        masked([chat(stream, "one"), chat(stream, "two")], "/chat/completions")
    looked.clear()
    masked([chat("b1", "one")], "/chat/completions")
    masked([chat("b2", "one")], None)
    assert len(looked) == 2


def test_another_text_that_is_no_text_is_looked_at(looked: list[Event]) -> None:
    last = [chat("b7", "first"), chat("b7", "x").replace(b'"x"', b'"\\x"'), chat("b7", "x").replace(b'"x"', b'""')]
    assert after(streams(lambda stream, at: {}), last, looked) == 3


def test_what_is_kept_is_bounded() -> None:
    forget_all()
    for number in range(700):
        model = (
            "m-" + "abcdefghij"[number % 10] + "abcdefghij"[number // 10 % 10]
        )  # no digit: each has a form of its own
        masked([chat(f"a{number}", "one"), chat(f"a{number}", f"two {number}", model=model)], "/chat/completions")
        same = b'data: {"id":"c","choices":[],"%d":1}\n\n' % (number // 2)
        masked([chat(f"a{number}", "one"), same], "/chat/completions")
    assert max(map(len, shared_masks._forms.values())) <= shared_masks.MAX_FORMS
    assert len(shared_masks._waiting) <= shared_masks.MAX_WAITING
    assert len(shared_masks._same) <= shared_masks.MAX_SAME


def test_what_cannot_be_learnt_is_tried_only_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_all()
    tried = []
    monkeypatch.setattr(shared_masks, "learn_mask", lambda one, other: tried.append(one))
    for number in range(40):
        masked([chat(f"a{number}", "one"), chat(f"a{number}", f"two{number}")], "/chat/completions")
    assert len(tried) == shared_masks.MAX_TRIES
