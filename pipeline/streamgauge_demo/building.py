"""Builds scenarios from frames: their timing, and the expected results."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamgauge_demo.frames import Frame, compact
from streamgauge_demo.scenario import JSON, Answer, Content, Endpoint, Expected, Framing, Piece, Scenario

# Range of a gap around its mean (factors). Providers' gaps are skewed: many are short, a few long.
SHORTEST_GAP, USUAL_GAP, LONGEST_GAP = 0.3, 0.6, 2.1


@dataclass(frozen=True, slots=True)
class Pace:
    """A model's speed: time from the head to the first token, and average time between tokens (seconds)."""

    first_s: float = 0.45
    gap_s: float = 0.028


USUAL_PACE = Pace()
PLAIN = Answer()


def paced(frames: Sequence[Frame], pace: Pace) -> tuple[Piece, ...]:
    """Each frame as one piece. A first frame without a token comes after half of the time to the first token, later ones
    without a token at once.
    """
    dice = random.Random(len(frames))  # the same frames always get the same delays
    pieces, before = [], True
    for number, frame in enumerate(frames):
        if before and frame.token:
            delay = pace.first_s / 2 if number else pace.first_s
        elif number == 0:
            delay = pace.first_s / 2
        else:
            delay = pace.gap_s * dice.triangular(SHORTEST_GAP, LONGEST_GAP, USUAL_GAP) if frame.token else 0.0
        before = before and not frame.token
        pieces.append(Piece(delay, frame.data, int(frame.token)))
    return tuple(pieces)


def together(pieces: Iterable[Piece], delay_s: float) -> tuple[Piece, ...]:
    """All pieces as one after `delay_s` (seconds), as a buffering proxy sends a stream."""
    all_pieces = tuple(pieces)
    return (Piece(delay_s, b"".join(piece.data for piece in all_pieces), sum(piece.tokens for piece in all_pieces)),)


def stalled(pieces: Sequence[Piece], at: int, delay_s: float) -> tuple[Piece, ...]:
    """The same pieces, with `delay_s` more seconds before the one at index `at`."""
    late = Piece(pieces[at].delay_s + delay_s, pieces[at].data, pieces[at].tokens)
    return (*pieces[:at], late, *pieces[at + 1 :])


def content_of(frames: Iterable[Frame]) -> Content:
    """What the frames carry."""
    all_frames = tuple(frames)
    return Content(
        token_events=sum(frame.token for frame in all_frames),
        text="".join(frame.text for frame in all_frames),
        reasoning="".join(frame.reasoning for frame in all_frames),
        arguments="".join(frame.arguments for frame in all_frames),
    )


def streamed(
    model: str,
    endpoint: Endpoint,
    title: str,
    frames: Sequence[Frame],
    expected: Expected,
    *,
    answer: Answer = PLAIN,
    pace: Pace = USUAL_PACE,
    shape: Callable[[tuple[Piece, ...]], tuple[Piece, ...]] = tuple,
    asks: Mapping[str, object] | None = None,
    leave_after: int | None = None,
    tap_only: bool = False,
) -> Scenario:
    """A scenario whose response is a stream of `frames`; `shape` changes their timing or grouping."""
    pieces = shape(paced(frames, pace))
    return Scenario(
        model=model,
        endpoint=endpoint,
        title=title,
        answer=replace(answer, pieces=pieces),
        expected=replace(expected, content=content_of(frames)),
        asks=asks or {},
        leave_after=leave_after,
        tap_only=tap_only,
    )


def answered(
    model: str,
    endpoint: Endpoint,
    title: str,
    body: Mapping[str, object] | str,
    expected: Expected,
    *,
    text: str = "",
    headers: Mapping[str, str] | None = None,
    asks: Mapping[str, object] | None = None,
) -> Scenario:
    """A scenario whose response is one whole body: JSON, or an HTML page if `body` is text. `text`: the generated text."""
    page = isinstance(body, str)
    data = body if isinstance(body, str) else compact(body)
    answer = Answer(
        status=expected.status or 200,
        headers=headers or {},
        content_type="text/html" if page else JSON,
        head_delay_s=0.3,
        pieces=(Piece(0.0, data.encode()),),
        framing=Framing.LENGTH,
    )
    whole_expected = replace(expected, streaming=False, content=Content(text=text))
    return Scenario(
        model=model, endpoint=endpoint, title=title, answer=answer, expected=whole_expected, asks=asks or {}
    )
