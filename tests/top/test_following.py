"""Asking several ports: at first all at once, then each by itself."""

import threading
import time
from collections.abc import Iterator

import pytest

from streamgauge.errors import Unavailable
from streamgauge.live.view import MAX_ROWS
from streamgauge.top.following import ROWS, Following, Wanted, asked_once, rows_for
from streamgauge.top.ports import AdminPort, port_at
from tests.live.serving import Served, serving
from tests.live.shown import FAILED, busy_process, id_of
from tests.running import PATIENCE_S, wait_for
from tests.top.answers import begin, finish, named

NOWHERE = port_at("127.0.0.1:1", None, None)


@pytest.fixture
def worker() -> Iterator[Served]:
    with serving(named("worker", 0)) as one:
        yield one


def port(served: Served) -> AdminPort:
    return port_at(served.url, None, None)


def test_one_process_gives_its_hour_and_several_give_their_own(worker: Served) -> None:
    _, wanted = asked_once([port(worker)], Wanted())
    assert not wanted.own
    with serving(named("tap")) as tap:
        assert not asked_once([port(worker), port(tap)], Wanted())[1].own
    with serving(named("worker", 1)) as other:
        heard, wanted = asked_once([port(worker), port(other)], Wanted())
    assert wanted.own
    assert [one.answer is not None for one in heard] == [True, True]
    assert asked_once([port(worker), NOWHERE], Wanted())[1].own, "the other may be a worker"


def test_without_an_answer_there_is_nothing_to_follow() -> None:
    with pytest.raises(
        Unavailable,
        match=r"nothing answers at 127.0.0.1:1 .*; nothing answers at 127.0.0.1:2 [^:]*: give the admin port of a",
    ):
        asked_once([NOWHERE, port_at("127.0.0.1:2", None, None)], Wanted())


def test_a_port_that_hangs_delays_no_other(worker: Served) -> None:
    hanging = threading.Event()

    class Hanging(AdminPort):
        def streams(self, rows: int, sort: str = "silent", *, own: bool = False) -> str:
            hanging.wait(PATIENCE_S)
            raise Unavailable("it hangs")

    ports = [Hanging("slow:1", "slow", 1, None, None), port(worker)]
    heard = [*asked_once(ports[1:], Wanted())[0]]
    following = Following(
        ports, [asked_once([NOWHERE, ports[1]], Wanted())[0][0], *heard], Wanted(), 0.05, lambda: None
    )
    following.start()
    try:
        worker.do(lambda process: begin(process, 1))
        wait_for(lambda: following.total.open == 1, "open stream")
        hanging.set()
        wait_for(lambda: "it hangs. Its streams are missing here." in list(following.total.problems), "problem")
    finally:
        hanging.set()
        following.stop()


def test_what_is_wanted_is_asked_at_once_and_changes_are_told() -> None:
    with serving(busy_process()) as served:
        ports, told = [port(served)], threading.Event()
        following = Following(ports, asked_once(ports, Wanted())[0], Wanted(), 3_600.0, told.set)
        following.start()
        try:
            following.want(ROWS, "silent", (0, id_of(FAILED)))
            assert told.wait(PATIENCE_S)
            answer = following.detail(id_of(FAILED)).answer
            assert answer is not None
            assert answer["reads"] == 2
            assert following.detail("another").answer is None
            following.want(ROWS, "silent", (0, id_of(10_000)))
            wait_for(lambda: following.detail(id_of(10_000)).problem, "sentence")
            following.want(1, "tokens", None)
            wait_for(lambda: following.total.not_shown == 2, "shorter list")
            told.clear()
            following.want(1, "tokens", None)
            time.sleep(0.2)
            assert not told.is_set(), "the same is not asked again"
        finally:
            following.stop()


def test_an_answer_grows_old_while_none_comes(worker: Served) -> None:
    ports = [port(worker)]
    worker.do(lambda process: finish(process, 1))
    following = Following(ports, asked_once(ports, Wanted())[0], Wanted(), 0.05, lambda: None)
    original = worker.process.view.overview
    worker.process.view.overview = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment]
    following.start()
    try:
        wait_for(
            lambda: any("0 s old" in problem or "1 s old" in problem for problem in following.total.problems), "age"
        )
        assert following.total.streams == 1
        worker.process.view.overview = original  # type: ignore[method-assign]
        wait_for(lambda: not list(following.total.problems), "answer")
    finally:
        following.stop()


def test_a_filter_and_a_long_list_need_more_rows() -> None:
    assert [rows_for(searching=False, line=0), rows_for(searching=True, line=0), rows_for(searching=False, line=45)] == [
        ROWS, MAX_ROWS, MAX_ROWS,
    ]  # fmt: skip
