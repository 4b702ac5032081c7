"""How a stream may end badly, through `streamgauge up`: clients leave, upstreams break, usage is wrong."""

import ssl
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamgauge_demo.provider import Provider, Script, chunk
from tests.client import Received
from tests.faults.scripted import (
    CHUNKED,
    DONE,
    UNFRAMED,
    ask,
    event,
    judge,
    last,
    same_bytes,
    whole,
    with_records,
)
from tests.running import Running, start_up, wait_for
from tests.taps.proxy.pki import Pki, make_pki

# From a client's leaving to the end of the upstream's connection (seconds): the machine is shared.
CANCELLED_S = 5.0


def usage(output: Any, prompt: Any = 3) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": 13}


# A server that reports the usage so far with each event (vLLM's continuous_usage_stats).
EVENTS = [event("one", usage=usage(1)), event(" two", usage=usage(2)), event(finish="stop", usage=usage(2)), DONE]
# Bytes before the client leaves, the record's outcome, the source of its usage, and its output tokens.
MOMENTS = {
    "first": (EVENTS[0][:1], "client_abort", "absent", None),
    "midway": (b"".join(EVENTS[:2]) + EVENTS[2][:9], "client_abort", "partial", 2),
    "last": (b"".join(EVENTS), "completed", "final", 2),
}


def test_u1_a_client_that_leaves_at_the_first_byte_midway_and_after_the_last(tmp_path: Path) -> None:
    """The upstream is cancelled; usage of a stream that was left is never final, and unknown usage is null."""
    scripts = {name: whole(body, end="stay") for name, (body, *_) in MOMENTS.items()}
    with Provider(scripts) as provider, start_up(provider.url, tmp_path / "data") as up:
        asked = {name: ask(up, name, leave_after=len(UNFRAMED) + len(body)) for name, (body, *_) in MOMENTS.items()}
        with_records(up, asked.values())
        for name, (_, outcome, source, output) in MOMENTS.items():
            received, sent = asked[name], last(provider, name)
            assert same_bytes(received, provider, name)
            left_at = wait_for(lambda sent=sent: sent.left_at, "end of the upstream's connection")
            assert received.left_at is not None
            assert left_at - received.left_at < CANCELLED_S
            record = received.record
            assert (record["outcome"], record["usage"]["source"]) == (outcome, source), name
            assert record["usage"]["output_tokens"] == output, name
            assert record["error"] is None
        judge(up)
        assert up.stop() == 0, up.log


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


PART = event("one") + event(" two")
# By script: which upstream (p: plain, s: with TLS), the script, the outcome, the cause, and how the client's connection ends.
BREAKS: dict[str, tuple[str, Script, str, str | None, set[str]]] = {
    "reset": ("p", whole(chunk(PART), CHUNKED, "reset"), "upstream_reset", "reset", {"rst"}),
    "closed": ("p", whole(chunk(PART), CHUNKED), "upstream_reset", "closed", {"fin", "rst"}),
    "half-a-chunk": ("p", whole(chunk(PART)[:-9], CHUNKED), "upstream_reset", "closed", {"fin", "rst"}),
    "no-terminal": ("p", whole(PART), "truncated", None, {"fin"}),
    "silent": ("p", whole(PART, end="stay"), "timeout", "idle_timeout", {"fin", "rst"}),
    "tls-reset": ("s", whole(chunk(PART), CHUNKED, "reset"), "upstream_reset", "reset", {"rst"}),
    "tls-without-notify": ("s", whole(PART), "upstream_reset", "closed", {"rst"}),
    "tls-with-notify": ("s", whole(PART, end="notify"), "truncated", None, {"fin"}),
}


def test_u2_an_upstream_that_breaks_is_seen_by_the_client_and_named_in_the_record(tmp_path: Path, pki: Pki) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server)
    scripts = {name: script for name, (_, script, *_) in BREAKS.items()}
    options = ("--upstream-ca", str(pki.ca), "--upstream-idle-timeout", "2")
    with (
        Provider(scripts) as plain,
        Provider(scripts, tls=context) as secure,
        start_up({"p": plain.url, "s": secure.url}, tmp_path / "data", *options) as up,
    ):
        providers = {"p": plain, "s": secure}
        asked = {name: ask(up, name, prefix=f"/{where}") for name, (where, *_) in BREAKS.items()}
        with_records(up, asked.values())
        found: dict[str, Any] = {}
        for name, (where, *_) in BREAKS.items():
            received = asked[name]
            assert same_bytes(received, providers[where], name), name
            error = received.record["error"]
            assert error is None or error["phase"] == "transport"
            found[name] = (received.record["outcome"], error and error["code"])
            assert received.record["counts"]["token_events"] == (1 if name == "half-a-chunk" else 2), name
        assert found == {name: (outcome, cause) for name, (_, _, outcome, cause, _) in BREAKS.items()}
        ends = {name: asked[name].end for name in BREAKS}
        assert {name for name, (*_, ended) in BREAKS.items() if ends[name] not in ended} == set(), ends
        judge(up)
        assert up.stop() == 0, up.log


# By script: usage objects of successive events; then input and output tokens, and whether a bad value was counted.
USAGES: dict[str, tuple[list[Any], int | None, int | None, bool]] = {
    "missing": ([], None, None, False),
    "once": ([usage(10)], 3, 10, False),
    "twice": ([usage(5), usage(10)], 3, 10, False),
    "negative": ([usage(10), usage(-5)], 3, 10, True),
    "beyond-63-bits": ([usage(10), usage(2**63)], 3, 10, True),
    "beyond-64-bits": ([usage(10), usage(2**64 + 1)], 3, 10, True),
    "float": ([usage(10), usage(5.5)], 3, 10, True),
    "huge-float": ([usage(10), usage(1e300)], 3, 10, True),
    "text": ([usage(10), usage("7")], 3, 10, True),
    "flag": ([usage(10), usage(output=True)], 3, 10, True),
    "list": ([usage(10), [1]], 3, 10, True),
    "only-bad": ([usage("many", -1)], None, None, True),
}
PRICES = '[[price]]\nmodel = "m-1"\nfrom = 2020-01-01\ninput = 0.1\noutput = 0.7\n'


@pytest.fixture
def priced(tmp_path: Path) -> Iterator[tuple[Provider, Running]]:
    scripts = {
        name: whole(b"".join(event("x", usage=one) for one in usages) + event(finish="stop") + DONE)
        for name, (usages, *_) in USAGES.items()
    }
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    with Provider(scripts) as provider, start_up(provider.url, tmp_path / "data", "--prices", str(prices)) as up:
        yield provider, up


def test_u4_the_last_valid_usage_counts_and_costs_exactly(priced: tuple[Provider, Running]) -> None:
    provider, up = priced
    asked: dict[str, Received] = {name: ask(up, name) for name in USAGES}
    with_records(up, asked.values())
    for name, (_, prompt, output, bad) in USAGES.items():
        assert same_bytes(asked[name], provider, name)
        record = asked[name].record
        assert record["outcome"] == "completed", name
        found = record["usage"]
        assert (found["input_tokens"], found["output_tokens"]) == (prompt, output), name
        assert (found["bad_values"] > 0) == bad, name
        if prompt is not None and output is not None:
            million = Decimal(1_000_000)
            expected = (prompt * Decimal("0.1") + output * Decimal("0.7")) / million
            assert isinstance(record["cost"]["usd"], str)
            assert Decimal(record["cost"]["usd"]) == expected, name
        else:
            assert record["cost"] is None or record["cost"]["usd"] is None, name
    anomalies = {
        name: value for name, value in up.metrics().items() if name.startswith("streamgauge_usage_anomalies_total")
    }
    assert sum(value for name, value in anomalies.items() if 'kind="bad_value"' in name) > 0
    judge(up)
    assert up.stop() == 0, up.log
