"""A response of the group's coordinator with an error code is an error, not an empty list of offsets."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
)
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from streamgauge.kafka.security import brokers_at
from streamgauge.worker import log as log_module
from streamgauge.worker.log import Log


class Coordinator:
    """Answers with what it is given. aiokafka's own question of this kind takes the first three for an empty group."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def start(self) -> None:
        pass

    async def find_coordinator(self, group: str) -> int:
        return 1

    async def _send_request(self, request: Any, node: int) -> Any:
        return self._answer


def asked(topics: list[Any], code: int = 0) -> Log:
    """A log whose group's coordinator answers so."""
    log, coordinator = Log(brokers_at("127.0.0.1:1"), "group"), Coordinator(OffsetFetchResponse_v3(0, topics, code))
    with (
        patch.object(log_module, "AIOKafkaConsumer", lambda **_: coordinator),
        patch.object(log_module, "AIOKafkaAdminClient", lambda **_: coordinator),
    ):
        asyncio.run(log.start())
    return log


@pytest.mark.parametrize(
    ("code", "error"),
    [(14, CoordinatorLoadInProgressError), (16, NotCoordinatorError), (30, GroupAuthorizationFailedError)],
)
def test_error_of_the_coordinator_is_not_an_empty_group(code: int, error: type[KafkaError]) -> None:
    for log in (asked([], code), asked([("topic", [(0, -1, "", code)])])):
        with pytest.raises(error):
            asyncio.run(log.committed("topic"))
        with pytest.raises(error):
            asyncio.run(log.committed_metadata("topic"))


def test_offsets_and_notes_are_those_of_the_topic_that_has_some() -> None:
    log = asked([("topic", [(0, 7, "id", 0), (1, -1, "", 0), (2, 0, "", 0)]), ("other", [(3, 9, "", 0)])])
    assert asyncio.run(log.committed("topic")) == {0: 7, 2: 0}
    assert asyncio.run(log.committed_metadata("topic")) == {0: "id", 2: ""}
    assert asyncio.run(asked([]).committed("topic")) == {}


class Client:
    """A client that can neither start nor stop. `calls`: those to all clients, in order."""

    calls: list[str]

    def __init__(self, **_: object) -> None:
        pass

    async def start(self) -> None:
        self.calls.append("start")
        raise KafkaConnectionError

    async def stop(self) -> None:
        self.calls.append("stop")
        raise KafkaConnectionError

    async def close(self) -> None:
        self.calls.append("close")


def test_clients_are_closed_after_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "AIOKafkaConsumer", Client)
    monkeypatch.setattr(log_module, "AIOKafkaAdminClient", Client)
    Client.calls = []
    log = Log(brokers_at("127.0.0.1:1"), "group")
    with pytest.raises(KafkaConnectionError):
        asyncio.run(log.has_message("topic", 0, 1, 2))
    assert Client.calls == ["start", "stop"]
    Client.calls = []
    with pytest.raises(KafkaConnectionError):
        asyncio.run(log.start())
    assert Client.calls == ["start"]
    Client.calls = []
    with pytest.raises(KafkaConnectionError):
        asyncio.run(log.stop())
    assert Client.calls == ["stop", "close"]
