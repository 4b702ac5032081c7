"""Streams that break and are resumed, and requests that are retried, by the official clients through a real tap.

Each leg has a record of its own; each token counts once; no leg's time is in a latency.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamgauge.core.token_kinds import INPUT_KINDS, OUTPUT_KINDS
from tests.integration.resumable import LAST_EVENT, LAST_SEQUENCE, MESSAGE, RESPONSE, Resumable
from tests.running import Running, command, start_up, wait_for

Record = dict[str, Any]

CLIENTS_S = 60.0
# A response and its three legs, a message and its leg, a refused leg, a retry and what it retries, two chats.
RECORDS = 11
# How the clients report a body that breaks off.
BREAK = "incomplete chunked read|Connection error"


def take_up_a_response(client: Any) -> None:
    with pytest.raises(Exception, match=BREAK):  # each client's HTTP library has its own class for it
        list(client.responses.create(model="big-1", input="A SECRET", stream=True))
    for _ in range(2):  # once more, as in a second window of the same user: the same usage is reported again
        rest = list(client.responses.retrieve("resp_1", stream=True, starting_after=LAST_SEQUENCE))
        assert rest[-1].type == "response.completed"
    assert len(list(client.responses.retrieve("resp_1", stream=True))) == len(RESPONSE)


def take_up_a_message(client: Any) -> None:
    def ask(**headers: str) -> Any:
        question: Any = [{"role": "user", "content": "A SECRET"}]
        return client.messages.create(
            model="claude-1", max_tokens=99, messages=question, stream=True, extra_headers={**headers}
        )

    with pytest.raises(Exception, match=BREAK):
        list(ask())
    assert list(ask(**{"Last-Event-ID": str(LAST_EVENT)}))[-1].type == "message_stop"


def chat(client: Any, model: str = "small-1", **headers: str) -> None:
    question: Any = [{"role": "user", "content": "A SECRET"}]
    chunks = client.chat.completions.create(model=model, messages=question, stream=True, extra_headers={**headers})
    assert [chunk.id for chunk in chunks] == ["c-same"] * 3


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """After all requests: a response resumed twice and read again from its start, a message resumed once, a refused
    resumption, a retry, and two requests with one id.
    """
    import anthropic
    import openai

    data_dir = tmp_path_factory.mktemp("resume") / "data"
    with Resumable() as server, start_up({"p": server.url}, data_dir) as running:
        root = f"{running.url}/p"
        with (
            openai.OpenAI(base_url=f"{root}/v1", api_key="sk-1", max_retries=1, timeout=CLIENTS_S) as first,
            anthropic.Anthropic(base_url=root, api_key="sk-2", max_retries=0, timeout=CLIENTS_S) as second,
        ):
            take_up_a_response(first)
            take_up_a_message(second)
            with pytest.raises(openai.BadRequestError, match="not for this model"):
                chat(first, **{"Last-Event-ID": "17"})
            chat(first, model="busy-1")
            chat(first)
            chat(first)
        running.wait_for_records(RECORDS)
        yield running


@pytest.fixture(scope="module")
def records(up: Running) -> list[Record]:
    return up.records()


def of(records: list[Record], **known: object) -> list[Record]:
    return [record for record in records if all(record[name] == value for name, value in known.items())]


def test_a_response_and_its_legs(records: list[Record]) -> None:
    [broken] = of(records, endpoint="/responses")
    assert (broken["outcome"], broken["resumed_from"]) == ("upstream_reset", None)
    assert (broken["response_id"], broken["last_sequence_number"]) == ("resp_1", LAST_SEQUENCE)
    assert (broken["counts"]["token_events"], broken["usage"]["source"]) == (4, "absent")
    legs = of(records, endpoint="/responses/{id}", resumed_from=str(LAST_SEQUENCE))
    assert len(legs) == 2
    for leg in legs:
        assert (leg["outcome"], leg["resumed_from"], leg["response_id"]) == ("completed", str(LAST_SEQUENCE), "resp_1")
        assert (leg["counts"]["repeated_events"], leg["counts"]["token_events"]) == (1, 3)
        assert broken["counts"]["token_events"] + leg["counts"]["token_events"] == len(RESPONSE) - 3
        assert (leg["usage"]["total_tokens"], leg["usage"]["source"]) == (42, "final")


def test_a_response_that_is_read_again_from_its_start(records: list[Record]) -> None:
    [again] = of(records, endpoint="/responses/{id}", resumed_from="start")
    assert (again["outcome"], again["response_id"], again["request_digest"]) == ("completed", "resp_1", None)
    assert (again["counts"]["repeated_events"], again["counts"]["token_events"]) == (0, len(RESPONSE) - 3)
    assert (again["usage"]["total_tokens"], again["usage"]["source"]) == (42, "final")
    assert again["timing"]["inter_token_latency_s"] is None


def test_a_message_and_its_leg(records: list[Record]) -> None:
    broken, leg = sorted(of(records, endpoint="/messages"), key=lambda record: str(record["started_at"]))
    assert (broken["outcome"], broken["resumed_from"], broken["last_event_id"]) == (
        "upstream_reset",
        None,
        str(LAST_EVENT),
    )
    assert (broken["usage"]["input_tokens"], broken["usage"]["output_tokens"]) == (41, None)
    assert (leg["outcome"], leg["resumed_from"], leg["response_id"]) == ("completed", str(LAST_EVENT), None)
    assert (leg["usage"]["input_tokens"], leg["usage"]["output_tokens"]) == (None, 20)
    assert broken["request_digest"] == leg["request_digest"] is not None
    assert broken["counts"]["token_events"] + leg["counts"]["token_events"] == len(MESSAGE) - 5


def test_a_refused_resume_is_an_http_error(records: list[Record]) -> None:
    [refused] = of(records, resumed_from="17")
    assert (refused["outcome"], refused["status_code"]) == ("http_error", 400)
    assert refused["error"] == {
        "phase": "before_stream",
        "type": "invalid_request_error",
        "code": "resume_not_supported",
        "status": 400,
    }


def test_a_retry_is_an_attempt_at_the_same_request(records: list[Record]) -> None:
    failed, done = sorted(of(records, request_model="busy-1"), key=lambda record: str(record["started_at"]))
    assert (failed["attempt"], failed["outcome"], failed["status_code"]) == (1, "http_error", 503)
    assert (done["attempt"], done["outcome"]) == (2, "completed")
    assert failed["request_digest"] == done["request_digest"] is not None
    assert {record["resumed_from"] for record in (failed, done)} == {None}


def totals(up: Running, by: str) -> list[dict[str, Any]]:
    done = command("ledger", "query", "--data-dir", str(up.data_dir), "--by", by, "--output", "jsonl")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# The response 30 and 12, the message 41 and 20, and three chats of 3 and 2: one after a retry, two that share an id.
INPUT, OUTPUT = 30 + 41 + 3 * 3, 12 + 20 + 3 * 2


def test_each_token_counts_once(up: Running) -> None:
    days = totals(up, "day")  # two, if midnight passes meanwhile
    sums = {
        name: sum(day[name] or 0 for day in days)
        for name in ("streams", "input_tokens", "output_tokens", "total_tokens")
    }
    assert sums == {"streams": RECORDS, "input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}


def test_a_retry_is_found_with_its_request(up: Running) -> None:
    tries: dict[str, list[Any]] = {}
    for line in totals(up, "request_digest,attempt,outcome"):
        tries.setdefault(str(line["request_digest"]), []).append(
            (line["attempt"], line["outcome"], line["output_tokens"])
        )
    assert [(1, "http_error", None), (2, "completed", 2)] in tries.values()


def test_two_requests_that_share_a_response_id_are_two(up: Running) -> None:
    [shared] = [line for line in totals(up, "response_id") if line["response_id"] == "c-same"]
    assert (shared["streams"], shared["input_tokens"], shared["output_tokens"]) == (3, 9, 6)


def settled(up: Running) -> dict[str, float]:
    """The metrics, once they contain all records."""
    return wait_for(
        lambda: (page := up.metrics()) and _sum(page, "streamgauge_streams_total") == RECORDS and page,
        "metrics of all records",
    )


def _sum(page: dict[str, float], name: str, label: str = "") -> float:
    return sum(value for found, value in page.items() if found.partition("{")[0] == name and label in found)


def test_the_metrics_count_each_token_once(up: Running) -> None:
    page = settled(up)
    assert sum(_sum(page, "streamgauge_usage_tokens_total", f'kind="{kind}"') for kind in INPUT_KINDS) == INPUT
    assert sum(_sum(page, "streamgauge_usage_tokens_total", f'kind="{kind}"') for kind in OUTPUT_KINDS) == OUTPUT
    assert _sum(page, "streamgauge_resumed_streams_total") == 5
    # Seven deltas of the response, the last three again, all again from its start, four of the message, three chats of one.
    assert _sum(page, "streamgauge_token_events_total") == 7 + 3 + 7 + 4 + 3


def test_the_metrics_agree_with_the_ledger_model_by_model(up: Running) -> None:
    """Both count a leg under the model of the request that began its stream, although the leg itself names none."""
    page, name = settled(up), "streamgauge_usage_tokens_total"
    lines = totals(up, "request_model")
    assert {line["request_model"] for line in lines} >= {"big-1", "claude-1", "small-1", "busy-1"}
    for line in lines:
        model = line["request_model"] or "unknown"
        for side, kinds in (("input", INPUT_KINDS), ("output", OUTPUT_KINDS)):
            value = sum(page.get(f'{name}{{kind="{kind}",model="{model}",upstream="p"}}', 0) for kind in kinds)
            assert value == (line[f"{side}_tokens"] or 0), (model, side)


def test_no_legs_time_is_in_a_latency(up: Running) -> None:
    page = settled(up)
    # Six requests are not resumptions: a response, a message, three chats, and one that was too early.
    assert _sum(page, "streamgauge_time_to_first_token_seconds_count") == 5
    assert _sum(page, "streamgauge_time_to_first_byte_seconds_count") == 5
    assert _sum(page, "streamgauge_stream_duration_seconds_count") == 6


def test_nothing_of_the_requests_is_kept(up: Running) -> None:
    held = b"".join(path.read_bytes() for path in Path(up.data_dir).iterdir() if path.is_file())
    assert b"A SECRET" not in held
    assert b"sk-1" not in held
