"""A response in the background is made by one request and read by others: what it used and cost counts once."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge_demo.provider import Exchange, Provider, whole
from tests.running import Running, command, start_up

USAGE = {"input_tokens": 700, "output_tokens": 90, "total_tokens": 790}


class Background(Provider):
    """Queues a response; it is done at the second read."""

    def __init__(self) -> None:
        super().__init__(self._play)

    async def _play(self, exchange: Exchange) -> None:
        await exchange.read_body()
        reads = sum(one.request.method == "GET" for one in self.exchanges)
        status = "queued" if exchange.request.method == "POST" else "in_progress" if reads == 1 else "completed"
        response = {"id": "resp_1", "object": "response", "status": status, "model": "gpt-5", "output": []}
        body = json.dumps({**response, "usage": USAGE if status == "completed" else None}).encode()
        await whole(body)(exchange)


@pytest.fixture
def server() -> Iterator[Provider]:
    with Background() as running:
        yield running


def send(up: Running, path: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(f"{up.url}{path}", body, {"authorization": "Bearer k"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_a_response_that_is_polled_counts_once_also_after_a_restart(server: Provider, tmp_path: Path) -> None:
    prices, data_dir = tmp_path / "prices.toml", tmp_path / "data"
    prices.write_text('[upstreams]\nsmall = "openai"\n')
    options = ({"small": server.url}, data_dir, "--prices", str(prices))
    with start_up(*options) as up:
        send(up, "/small/v1/responses", b'{"model":"gpt-5","background":true}')
        for _ in range(3):
            send(up, "/small/v1/responses/resp_1")
        records = up.wait_for_records(4)
        assert [record["usage"]["total_tokens"] for record in records] == [None, None, 790, 790]
        assert {record["request"]["host"] for record in records} == {"127.0.0.1"}
        metrics = up.metrics()
        tokens = sum(value for name, value in metrics.items() if name.startswith("streamgauge_usage_tokens_total"))
        cost = sum(value for name, value in metrics.items() if name.startswith("streamgauge_cost_usd_total"))
        assert tokens == 790
        assert cost == pytest.approx(0.001775)
        assert up.stop() == 0
    with start_up(*options) as up:
        send(up, "/small/v1/responses/resp_1")
        up.wait_for_records(5)
        assert up.stop() == 0
    done = command("ledger", "query", "--by", "upstream", "--output", "jsonl", "--data-dir", str(data_dir))
    total = json.loads(done.stdout)
    assert (total["streams"], total["with_usage"], total["total_tokens"], total["cost_usd"]) == (5, 1, 790, "0.001775")


def test_an_own_server_has_no_cost_whatever_its_name_and_model_are(server: Provider, tmp_path: Path) -> None:
    with start_up({"openai": server.url}, tmp_path / "data") as up:
        for _ in range(2):
            send(up, "/openai/v1/responses/resp_1")
        assert [record["cost"] for record in up.wait_for_records(2)] == [None, None]
        unpriced = {name: value for name, value in up.metrics().items() if "unpriced_streams_total{" in name}
        [(name, value)] = unpriced.items()
        assert ('cost_unknown="no_seller"' in name, value) == (True, 1)
