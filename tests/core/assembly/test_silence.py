"""Which open streams count as silent: by their tap's clock, never by ours, and only if output is due."""

import msgspec

from streamgauge.core.assembly.assembler import BUCKETS, Assembler
from streamgauge.core.capture.segments import Bundle, Ending, Head, Read, RequestFacts, Segment, StreamEnding
from streamgauge.core.limits import Limits
from tests.streams import FINISH, INSTANCE, chat_event, opening, stream_id

SECOND = 1_000_000_000
OTHER_TAP = bytes(reversed(INSTANCE))


class Tap:
    """Sends segments of one tap instance to an assembler, with the tap's clock, as a worker does: with checkpoints."""

    def __init__(self, assembler: Assembler, instance: bytes = INSTANCE, first_offset: int = 0) -> None:
        self._assembler = assembler
        self._instance = instance
        self._first_offset = first_offset
        self._number = 0
        self._segments: dict[bytes, int] = {}

    def send(self, at_s: float, *segments: Segment) -> None:
        """A bundle at `at_s` of the tap's clock; without segments a heartbeat."""
        numbered = []
        for segment in segments:
            number = self._segments.get(segment.stream, 0)
            self._segments[segment.stream] = number + 1
            numbered.append(msgspec.structs.replace(segment, number=number))
        bundle = Bundle(self._instance, 0, self._number, round(at_s * SECOND), numbered)
        self._assembler.apply(self._first_offset + self._number, self._number, bundle)
        self._number += 1
        for key in self._assembler.changed():
            self._assembler.dump(key)


def begins(number: int, *, head: Head | None = None, stream: bool | None = True, path: str | None = "/x") -> Segment:
    facts = RequestFacts(model="m", stream=stream)
    start = msgspec.structs.replace(opening(), path="/chat/completions" if path else None)
    return Segment(stream_id(number), 0, opening=start, request=facts, head=head)


def says(number: int, at_s: float, content: bytes) -> Segment:
    return Segment(stream_id(number), 0, reads=[Read(round(at_s * SECOND), len(content), len(content), content)])


EVENTS = Head(200, 0, True)
TOKEN = chat_event(content="a ")


def silent(assembler: Assembler) -> int:
    return assembler.silent_streams().total()


def test_a_stream_is_silent_once_it_has_sent_no_token_for_long_enough() -> None:
    assembler = Assembler()
    tap = Tap(assembler)
    tap.send(100, begins(1, head=EVENTS), begins(2, head=EVENTS))
    assert assembler.silent_streams() == {"sim": 0}
    tap.send(125, says(1, 25, TOKEN))
    assert silent(assembler) == 0
    tap.send(130)
    assert silent(assembler) == 0, "the limit is not exceeded yet"
    tap.send(131)
    assert assembler.silent_streams() == {"sim": 1}
    tap.send(156)
    assert assembler.silent_streams() == {"sim": 2}
    tap.send(157, says(2, 57, TOKEN))
    assert assembler.silent_streams() == {"sim": 1}, "a stream that goes on is not silent any more"
    tap.send(158, Segment(stream_id(1), 0, end=StreamEnding(Ending.RESET)))
    assert assembler.silent_streams() == {"sim": 0}, "a stream that has ended is not open"


def test_the_setting_says_how_long() -> None:
    assembler = Assembler(Limits(silent_seconds=2))
    tap = Tap(assembler)
    tap.send(100, begins(1, head=EVENTS))
    assert silent(assembler) == 0
    tap.send(103)
    assert silent(assembler) == 1


def test_comments_and_other_events_are_no_output() -> None:
    assembler = Assembler()
    tap = Tap(assembler)
    tap.send(100, begins(1, head=EVENTS))
    assert silent(assembler) == 0
    tap.send(131, says(1, 31, b": PROCESSING\n\n"), says(1, 31, b'data: {"choices":[]}\n\n'))
    assert silent(assembler) == 1


def test_nothing_becomes_silent_while_its_tap_cannot_be_heard() -> None:
    """The broker is away, or the worker is behind: other taps' clocks go on, and so does the log's time."""
    assembler = Assembler()
    tap, other = Tap(assembler), Tap(assembler, OTHER_TAP, 1_000)
    tap.send(100, begins(1, head=EVENTS))
    assert silent(assembler) == 0
    for later in range(5_000, 9_000, 500):
        other.send(later)
        assert silent(assembler) == 0
    assert Assembler().silent_streams() == {}


def test_a_new_owner_begins_to_measure_when_it_sees_the_stream() -> None:
    first = Assembler()
    Tap(first).send(100, begins(1, head=EVENTS))
    second = Assembler()
    for key in range(BUCKETS + 1):
        second.load(key, first.dump(key))
    assert silent(second) == 0, "its tap was not heard yet"
    for number, at_s in ((1, 200), (2, 225)):
        second.apply(number, number, Bundle(INSTANCE, 0, number, at_s * SECOND))
        assert silent(second) == 0
    second.apply(3, 3, Bundle(INSTANCE, 0, 3, 231 * SECOND))
    assert silent(second) == 1


def test_only_streams_from_which_output_is_due_count() -> None:
    assembler = Assembler()
    tap = Tap(assembler)
    tap.send(
        100,
        begins(1, head=Head(200, 0, False)),  # a whole JSON answer comes at its end
        begins(2, stream=False),  # the same, without a head yet
        begins(3, head=EVENTS),  # it is finished, and the connection stays open
        begins(4, head=EVENTS, path=None, stream=None),  # an event stream that is not an LLM's
        begins(5),  # no head yet: the provider accepted the request and answers nothing
    )
    tap.send(100, says(3, 0, TOKEN + FINISH))
    assert silent(assembler) == 0
    tap.send(200)
    assert assembler.silent_streams() == {"sim": 1}
