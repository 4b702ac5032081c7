"""Asks admin ports again and again, each on a thread of its own: one that does not answer delays no other."""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamgauge.errors import Unavailable
from streamgauge.live.view import MAX_ROWS
from streamgauge.top.picture import Detail
from streamgauge.top.ports import GIVE, AdminPort, Json, NoSuchStreamError, NothingThere
from streamgauge.top.total import TAP, Heard, Total

# Open streams that each process lists, while no more are looked for.
ROWS = 50
# Ports that are asked at the same time before the view begins.
_AT_ONCE = 32


@dataclass(frozen=True)
class Wanted:
    """What the ports are asked for, as in docs/reference/streams.md. `stream`: one stream's id, with its port's index."""

    rows: int = ROWS
    sort: str = "silent"
    own: bool = False
    stream: tuple[int, str] | None = None


def asked_once(ports: Sequence[AdminPort], wanted: Wanted) -> tuple[list[Heard], Wanted]:
    """What each port answers now, and what to ask from now on. Raises Unavailable if none of them answers.

    Several processes that keep finished streams are asked for their own ones, so that none counts twice.
    """
    heard = _all(ports, wanted)
    if all(one.answer is None for one in heard):
        problems = "; ".join(str(one.problem) for one in heard)
        raise Unavailable(f"{problems}: {GIVE}" if all(one.is_gone for one in heard) else problems)
    finishing = [one for one in heard if one.answer is not None and one.answer["process"] != TAP]
    # One that does not answer may be a further one: its streams must not come twice when it is back.
    if len(finishing) > 1 or (finishing and any(one.answer is None for one in heard)):
        wanted = Wanted(wanted.rows, wanted.sort, own=True, stream=wanted.stream)
        heard = _all(ports, wanted)
    return heard, wanted


def _all(ports: Sequence[AdminPort], wanted: Wanted) -> list[Heard]:
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(len(ports), _AT_ONCE)) as pool:
        return list(pool.map(lambda port: _heard(port, wanted), ports))


def _heard(port: AdminPort, wanted: Wanted) -> Heard:
    try:
        return Heard(port.address, port.answer(port.streams(wanted.rows, wanted.sort, own=wanted.own)))
    except Unavailable as error:
        return Heard(port.address, None, str(error), is_gone=isinstance(error, NothingThere))


class Following:
    """The newest answers of the ports. `changed` is called, on a thread, after each of them. `interval_s`: between two."""

    def __init__(
        self,
        ports: Sequence[AdminPort],
        heard: Sequence[Heard],
        wanted: Wanted,
        interval_s: float,
        changed: Callable[[], None],
    ) -> None:
        self._ports = ports
        self._heard = list(heard)
        self._at_s = [time.monotonic()] * len(ports)  # when each answered last
        self._wanted = wanted
        self._interval_s = interval_s
        self._changed = changed
        self._detail: tuple[str, Detail] | None = None
        self._now = [threading.Event() for _ in ports]  # ask at once
        self._ended = False

    def start(self) -> None:
        """Starts the threads, which end with the program."""
        for at in range(len(self._ports)):
            threading.Thread(target=self._ask, args=(at,), name=f"top {at}", daemon=True).start()

    def stop(self) -> None:
        """Lets the threads end: none calls `changed` any more."""
        self._ended = True
        for event in self._now:
            event.set()

    def want(self, rows: int, sort: str, stream: tuple[int, str] | None) -> None:
        """Changes what is asked for; at once, if it is something else."""
        wanted = Wanted(rows, sort, self._wanted.own, stream)
        if wanted != self._wanted:
            self._wanted = wanted
            for event in self._now:
                event.set()

    @property
    def total(self) -> Total:
        """The sum of the newest answers."""
        now_s = time.monotonic()
        return Total(
            [
                Heard(one.address, one.answer, one.problem, now_s - at_s)
                for one, at_s in zip(self._heard, self._at_s, strict=True)
            ]
        )

    def detail(self, stream_id: str) -> Detail:
        """The newest answer about a stream."""
        return self._detail[1] if self._detail is not None and self._detail[0] == stream_id else Detail()

    def _ask(self, at: int) -> None:
        while True:
            self._now[at].wait(self._interval_s)
            self._now[at].clear()
            if self._ended:
                return
            wanted, port = self._wanted, self._ports[at]
            heard = _heard(port, wanted)
            if heard.answer is None:
                self._heard[at] = Heard(heard.address, self._heard[at].answer, heard.problem)
            else:
                self._heard[at], self._at_s[at] = heard, time.monotonic()
            if wanted.stream is not None and wanted.stream[0] == at:
                self._detail = wanted.stream[1], _detail(port, wanted.stream[1])
            if not self._ended:
                self._changed()


def _detail(port: AdminPort, stream_id: str) -> Detail:
    try:
        answer: Json = port.stream(stream_id)
        return Detail(answer)
    except (Unavailable, NoSuchStreamError) as error:
        return Detail(problem=str(error))


def rows_for(*, searching: bool, line: int) -> int:
    """How many open streams each process lists: all that it may, while a filter searches them or the list is scrolled far."""
    return MAX_ROWS if searching or line > ROWS - 10 else ROWS
