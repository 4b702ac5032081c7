"""The driver: what the official clients raise, in a few words; sync and async clients are driven the same way."""

import asyncio
import threading

import pytest

from streamgauge_demo.asking import arguments
from streamgauge_demo.driver import Clients, drive, drive_all, drive_sync
from streamgauge_demo.scenario import ClientEnd, Endpoint, Scenario
from streamgauge_demo.scenarios import BY_MODEL, SCENARIOS
from streamgauge_demo.tally import Seen
from streamgauge_demo.verdict import client_differences
from tests.demo.running import simulator

pytestmark = pytest.mark.slow

A_FEW = [
    BY_MODEL[model] for model in ("nanogpt/chat-two", "nimbus/messages-reset", "sansa/whole", "local/text-logprobs")
]


def test_every_request_names_its_scenario_and_has_its_content() -> None:
    for scenario in SCENARIOS:
        options = arguments(scenario)
        assert options["model"] == scenario.model
        assert options["stream"] is (scenario.asks.get("stream", True))
        assert ("tools" in options) == bool(scenario.expected.content.arguments)
        assert ("max_tokens" in options) == (
            scenario.endpoint is Endpoint.MESSAGES or scenario.model == "gateway/length"
        )


@pytest.mark.parametrize(
    ("model", "end", "name"),
    [
        ("nanogpt/chat-limited", ClientEnd.STATUS, "RateLimitError"),
        ("sansa/error-mid-stream", ClientEnd.ERROR, "APIError"),
        ("nimbus/messages-error", ClientEnd.ERROR, "APIStatusError"),
        ("gateway/reset", ClientEnd.CONNECTION, "APIConnectionError"),
        ("local/chat-impatient", ClientEnd.TIMEOUT, "APITimeoutError"),
    ],
)
def test_what_a_client_raises_is_seen(model: str, end: ClientEnd, name: str) -> None:
    with simulator() as running:
        seen = drive_sync(BY_MODEL[model], running.url)
    assert seen.end == end
    assert seen.error is not None
    assert seen.error[0] == name


def test_an_error_of_the_demo_is_raised() -> None:
    """A bug of the demo itself is not taken for a result."""

    def watch(scenario: Scenario, item: object) -> None:
        raise KeyError("a bug")

    with simulator() as running, pytest.raises(KeyError, match="a bug"):
        drive_sync(BY_MODEL["nanogpt/chat-tools"], running.url, watch)


def test_all_are_driven_some_of_them_by_sync_clients_in_threads() -> None:
    seen: list[tuple[Scenario, Seen]] = []
    started: list[str] = []
    threads = threading.active_count()
    with simulator() as running:
        asyncio.run(
            drive_all(
                A_FEW,
                running.url,
                concurrency=2,
                started=lambda scenario: started.append(scenario.model),
                ended=lambda scenario, one: seen.append((scenario, one)),
                sync_every=2,
            )
        )
    assert sorted(started) == sorted(scenario.model for scenario in A_FEW)
    assert {scenario.model: client_differences(scenario, one) for scenario, one in seen} == {
        scenario.model: [] for scenario in A_FEW
    }
    assert threading.active_count() == threads


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    with simulator() as running:
        assert drive_sync(BY_MODEL["sansa/whole"], running.url).end is ClientEnd.WHOLE

        async def other() -> Seen:
            clients = Clients(sync=False)
            seen = await drive(clients, BY_MODEL["nimbus/messages-whole"], running.url)
            await clients.close()
            return seen

        assert asyncio.run(other()).end is ClientEnd.WHOLE
