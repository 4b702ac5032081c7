"""The libraries' log lines are throttled, and each problem for an operator is logged once."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from aiokafka.errors import KafkaError

from streamgauge.kafka import log_throttle
from streamgauge.kafka.log_throttle import BrokerMonitor, throttle_logs


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[Logged]:
    throttle_logs().forget()
    handler = Logged()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


async def is_up() -> bool:
    return True


def test_a_flood_while_the_broker_is_away_is_two_sentences(logged: Logged) -> None:
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    library = logging.getLogger("aiokafka.client")
    for _ in range(300):
        library.error("Unable connect to node with id %s", 1)
        monitor.report(False)
    monitor.report(True)
    monitor.report(True)
    assert logged.lines == [
        "the broker at 127.0.0.1:9 does not answer (Unable connect to node with id 1); it is waited for",
        "the broker at 127.0.0.1:9 answers again",
    ]


def test_other_complaints_come_once_with_their_number(logged: Logged) -> None:
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    for number in range(50):
        logging.getLogger("faust.somewhere").warning("odd\nthing %d", number)
    monitor.report(True)
    monitor.report(True)
    assert len(logged.lines) == 1
    assert logged.lines[0] == "faust.somewhere: odd thing 49 (50 times)"


def test_service_name_of_mode_is_shown_without_its_marks(logged: Logged) -> None:
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    logging.getLogger("mode.services").warning("[^---Consumer]: stopped slowly")
    logging.getLogger("mode.timers").warning("[^--_Thread] is late")
    monitor.report(True)
    assert sorted(logged.lines) == ["mode.services: Consumer: stopped slowly", "mode.timers: Thread: is late"]


def test_logger_that_was_silenced_is_enabled_again(logged: Logged) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    logging.getLogger("aiokafka.client").error("odd")
    monitor.report(True)
    assert logged.lines == ["aiokafka.client: odd"]


def test_only_the_text_of_the_clients_own_errors_is_logged(logged: Logged) -> None:
    """The text of another error may quote what a stream holds."""
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    for library, error in (("faust.agents", ValueError("a prompt")), ("aiokafka.client", KafkaError("no leader"))):
        logging.getLogger(library).error("failed", exc_info=error)
    monitor.report(True)
    of_libraries = [line for line in logged.lines if not line.startswith("internal error")]
    assert of_libraries == ["faust.agents: failed: ValueError", "aiokafka.client: failed: KafkaError('no leader')"]
    assert not any("a prompt" in line for line in logged.lines)


def test_information_is_not_passed_on(logged: Logged) -> None:
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    logging.getLogger("aiokafka.consumer").info("joined a group")
    monitor.report(True)
    assert logged.lines == []


def test_broker_is_checked_only_after_a_log_line(logged: Logged) -> None:
    calls: list[bool] = []

    async def answer() -> bool:
        calls.append(True)
        return len(calls) != 2

    async def run() -> None:
        monitor = BrokerMonitor("127.0.0.1:9", answer, "it is waited for")
        running = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.2)
        assert monitor.connected
        logging.getLogger("aiokafka.client").error("connection lost, says who")
        await asyncio.sleep(1.2)
        assert not monitor.connected
        await asyncio.sleep(1.2)
        assert monitor.connected
        running.cancel()

    asyncio.run(run())
    assert len(calls) == 3
    assert [line.split(" (")[0] for line in logged.lines] == [
        "the broker at 127.0.0.1:9 does not answer",
        "the broker at 127.0.0.1:9 answers again",
    ]


def test_the_number_of_a_line_comes_without_a_further_line(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the next one, for hours."""
    monkeypatch.setattr(log_throttle, "REPEAT_S", 1.0)
    monkeypatch.setattr(log_throttle, "CHECK_EVERY_S", 0.1)

    async def run() -> None:
        running = asyncio.create_task(BrokerMonitor("127.0.0.1:9", is_up, "it is waited for").run())
        library = logging.getLogger("faust.somewhere.else")
        await asyncio.sleep(0.3)
        for _ in range(2):  # the second time, within _REPEAT_S
            for _ in range(5):
                library.warning("odd")
            await asyncio.sleep(0.3)
        await asyncio.sleep(1.2)
        running.cancel()

    asyncio.run(run())
    assert logged.lines == ["faust.somewhere.else: odd (5 times)"] * 2


def test_each_problem_is_logged_once_per_outage(logged: Logged) -> None:
    monitor = BrokerMonitor("127.0.0.1:9", is_up, "it is waited for")
    for _ in range(5):
        monitor.report(False, "the certificate has expired: renew it")
        monitor.report(False, "the password is wrong: give another")
        assert monitor.problem == "the password is wrong: give another"
        monitor.report(False)
    monitor.report(True)
    assert monitor.problem is None
    monitor.report(False, "the certificate has expired: renew it")
    assert logged.lines == [
        "the certificate has expired: renew it; it is waited for",
        "the password is wrong: give another; it is waited for",
        "the broker at 127.0.0.1:9 answers again",
        "the certificate has expired: renew it; it is waited for",
    ]


def test_reason_is_diagnosed_at_a_limited_rate(logged: Logged) -> None:
    looked: list[bool] = []

    async def unreachable() -> bool:
        return False

    async def refusal() -> str:
        looked.append(True)
        return "the password is wrong: give another"

    async def run() -> None:
        monitor = BrokerMonitor("127.0.0.1:9", unreachable, "it is waited for", refusal)
        running = asyncio.create_task(monitor.run())
        await asyncio.sleep(2.5)
        assert monitor.problem == "the password is wrong: give another"
        running.cancel()

    asyncio.run(run())
    assert len(looked) == 1
    assert logged.lines == ["the password is wrong: give another; it is waited for"]


def test_a_rebalance_is_no_fault(logged: Logged) -> None:
    throttle = throttle_logs()
    throttle.take_due(1e9)
    throttle.has_new_lines()
    coordinator = logging.getLogger("aiokafka.consumer.group_coordinator")
    coordinator.warning("Heartbeat failed for group %s because it is rebalancing", "streamgauge")
    assert (throttle.has_new_lines(), throttle.take_due(2e9)) == (False, [])
    coordinator.warning("Heartbeat failed: local member_id was not recognized; resetting and re-joining group")
    assert len(throttle.take_due(3e9)) == 1
