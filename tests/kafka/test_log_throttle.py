"""What the libraries log is damped, and what an operator needs to know comes through once."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from streamgauge.kafka.log_throttle import Watch, throttle_logs


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def heard() -> Iterator[Heard]:
    throttle_logs().forget()
    handler = Heard()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


async def there() -> bool:
    return True


def test_a_flood_while_the_broker_is_away_is_two_sentences(heard: Heard) -> None:
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    library = logging.getLogger("aiokafka.client")
    for _ in range(300):
        library.error("Unable connect to node with id %s", 1)
        watch.seen(False)
    watch.seen(True)
    watch.seen(True)
    assert heard.lines == [
        "the broker at 127.0.0.1:9 does not answer (Unable connect to node with id 1); it is waited for",
        "the broker at 127.0.0.1:9 answers again",
    ]


def test_other_complaints_come_once_with_their_number(heard: Heard) -> None:
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    for number in range(50):
        logging.getLogger("faust.somewhere").warning("odd\nthing %d", number)
    watch.seen(True)
    watch.seen(True)
    assert len(heard.lines) == 1
    assert heard.lines[0] == "faust.somewhere: odd thing 49 (50 times)"


def test_a_service_of_the_library_is_named_without_its_signs(heard: Heard) -> None:
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    logging.getLogger("mode.services").warning("[^---Consumer]: stopped slowly")
    logging.getLogger("mode.timers").warning("[^--_Thread] is late")
    watch.seen(True)
    assert sorted(heard.lines) == ["mode.services: Consumer: stopped slowly", "mode.timers: Thread: is late"]


def test_who_was_silenced_before_is_heard_again(heard: Heard) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    logging.getLogger("aiokafka.client").error("odd")
    watch.seen(True)
    assert heard.lines == ["aiokafka.client: odd"]


def test_information_is_not_passed_on(heard: Heard) -> None:
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    logging.getLogger("aiokafka.consumer").info("joined a group")
    watch.seen(True)
    assert heard.lines == []


def test_it_asks_when_there_is_a_reason_to(heard: Heard) -> None:
    asked: list[bool] = []

    async def answer() -> bool:
        asked.append(True)
        return len(asked) != 2

    async def run() -> None:
        watch = Watch("127.0.0.1:9", answer, "it is waited for")
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(0.2)
        assert watch.connected
        logging.getLogger("aiokafka.client").error("connection lost, says who")
        await asyncio.sleep(1.2)
        assert not watch.connected
        await asyncio.sleep(1.2)
        assert watch.connected
        running.cancel()

    asyncio.run(run())
    assert len(asked) == 3
    assert [line.split(" (")[0] for line in heard.lines] == [
        "the broker at 127.0.0.1:9 does not answer",
        "the broker at 127.0.0.1:9 answers again",
    ]


def test_what_is_to_be_put_right_is_said_once_for_each_trouble(heard: Heard) -> None:
    watch = Watch("127.0.0.1:9", there, "it is waited for")
    for _ in range(5):
        watch.seen(False, "the certificate has expired: renew it")
        watch.seen(False, "the password is wrong: give another")
        assert watch.problem == "the password is wrong: give another"
        watch.seen(False)
    watch.seen(True)
    assert watch.problem is None
    watch.seen(False, "the certificate has expired: renew it")
    assert heard.lines == [
        "the certificate has expired: renew it; it is waited for",
        "the password is wrong: give another; it is waited for",
        "the broker at 127.0.0.1:9 answers again",
        "the certificate has expired: renew it; it is waited for",
    ]


def test_it_looks_for_the_reason_when_the_broker_goes_and_not_at_every_question(heard: Heard) -> None:
    looked: list[bool] = []

    async def away() -> bool:
        return False

    async def refusal() -> str:
        looked.append(True)
        return "the password is wrong: give another"

    async def run() -> None:
        watch = Watch("127.0.0.1:9", away, "it is waited for", refusal)
        running = asyncio.create_task(watch.run())
        await asyncio.sleep(2.5)
        assert watch.problem == "the password is wrong: give another"
        running.cancel()

    asyncio.run(run())
    assert len(looked) == 1
    assert heard.lines == ["the password is wrong: give another; it is waited for"]
