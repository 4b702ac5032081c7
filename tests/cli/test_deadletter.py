"""`streamgauge deadletter` against a real broker: what it prints, what it sends back, and how it ends."""

import asyncio
import base64
import json
import subprocess
from typing import Any

import pytest

from streamgauge.cli.main import main
from streamgauge.core.capture.bundles import encode_bundle
from streamgauge.core.record import Record, encode_record
from streamgauge.kafka.dead_letters import Sender, Stage, dead_letter_of
from streamgauge.kafka.topics import Topics
from tests.kafka.test_dead_letters import Source
from tests.kafka_broker.reading import read_all
from tests.running import command, here
from tests.streams import bundles_of, interleaved

pytestmark = pytest.mark.kafka

BUNDLES = [encode_bundle(one) for one in bundles_of(interleaved(3))]


def put(bootstrap: str, topics: Topics, *letters: tuple[Source, bytes | None, Stage, str]) -> None:
    async def run() -> None:
        async with Sender(bootstrap) as sender:
            for source, value, stage, error in letters:
                await sender.send(dead_letter_of(topics, source, value, stage, error))

    asyncio.run(run())


def deadletter(kafka: str, prefix: str, *arguments: str, ask: Any = here) -> "subprocess.CompletedProcess[str]":
    done: subprocess.CompletedProcess[str] = ask("deadletter", *arguments, "--kafka", kafka, "--topic-prefix", prefix)
    return done


def segments(kafka: str, topics: Topics) -> list[tuple[int, bytes | None]]:
    found: list[Any] = asyncio.run(read_all(kafka, topics.segments))
    return [(one.partition, one.value) for one in found]


@pytest.fixture
def some(kafka: str, prefix: str) -> Topics:
    """A topic with five letters: two that can now be read, three that cannot."""
    topics = Topics(prefix)
    put(
        kafka,
        topics,
        (Source(topics.segments, 1, 10), b"junk \x1b[2J", Stage.DECODE, "frame"),
        (Source(topics.segments, 2, 11), BUNDLES[0], Stage.DECODE, "version"),
        (Source(topics.segments, 2, 12), BUNDLES[1], Stage.DECODE, "version"),
        (Source(topics.segments, 2, 13), b"SG\x63" + BUNDLES[0][3:], Stage.DECODE, "version"),
        (Source(topics.records, 0, 14, b"id"), b"{}", Stage.LEDGER, "unreadable"),
    )
    return topics


def test_list_prints_all_or_those_that_match_the_filters(kafka: str, some: Topics) -> None:
    done = deadletter(kafka, some.prefix, "list", ask=command)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["letter", "at", "stage", "error", "topic", "partition", "offset", "bytes", "version"]
    assert [row.split()[2:7] for row in rows] == [
        ["decode", "frame", some.segments, "1", "10"],
        ["decode", "version", some.segments, "2", "11"],
        ["decode", "version", some.segments, "2", "12"],
        ["decode", "version", some.segments, "2", "13"],
        ["ledger", "unreadable", some.records, "0", "14"],
    ]
    listed = deadletter(kafka, some.prefix, "list", "--output", "jsonl", "--error-class", "version", "--limit", "2")
    listed_rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [
        (listed_row["letter"], listed_row["partition"], listed_row["offset"], listed_row["value_bytes"])
        for listed_row in listed_rows
    ] == [
        (1, 2, 11, len(BUNDLES[0])),
        (2, 2, 12, len(BUNDLES[1])),
    ]
    for flags, numbers in (
        (("--stage", "ledger"), [4]),
        (("--partition", "1"), [0]),
        (("--since", "3600"), [0, 1, 2, 3, 4]),
        (("--since", "0"), []),
    ):
        left = deadletter(kafka, some.prefix, "list", "--output", "jsonl", *flags)
        assert left.returncode == 0
        assert [json.loads(line)["letter"] for line in left.stdout.splitlines()] == numbers
    assert left.stderr == f"streamgauge deadletter: no dead letter in {some.deadletter} matches\n"


def test_each_action_prints_one_json_document(kafka: str, some: Topics) -> None:
    listed = json.loads(deadletter(kafka, some.prefix, "list", "--output", "json", "--error-class", "version").stdout)
    assert [one["letter"] for one in listed] == [1, 2, 3]
    assert json.loads(deadletter(kafka, some.prefix, "list", "--output", "json", "--since", "0").stdout) == []
    shown = json.loads(deadletter(kafka, some.prefix, "show", "0", "--output", "json").stdout)
    assert base64.b64decode(shown["value_base64"]) == b"junk \x1b[2J"
    tried = deadletter(kafka, some.prefix, "retry", "1", "3", "9", "--dry-run", "--output", "json")
    assert tried.returncode == 1
    done = json.loads(tried.stdout)
    assert (done["dry_run"], done["complete"], done["missing"]) == (True, True, [9])
    assert done["sent"] == [{"topic": some.segments, "partition": 2, "messages": 1}]
    assert [one["messages"] for one in done["not_sent"]] == [1]


def test_show_prints_the_reason_and_the_content(kafka: str, some: Topics) -> None:
    junk = deadletter(kafka, some.prefix, "show", "0")
    assert (junk.returncode, junk.stderr) == (0, "")
    assert f"from     {some.segments}, partition 1, offset 10" in junk.stdout
    assert "error    frame" in junk.stdout
    assert "now      this version cannot read it either (not a Streamgauge bundle)" in junk.stdout
    assert "00000000  6a 75 6e 6b 20 1b 5b 32 4a" in junk.stdout
    assert "\x1b" not in junk.stdout
    good = deadletter(kafka, some.prefix, "show", "1").stdout
    assert "now      this version can read it: `streamgauge deadletter retry 1` sends it back" in good
    assert "bundle   number 0 of tap instance " in good
    newer = deadletter(kafka, some.prefix, "show", "3").stdout
    assert "(bundle format 99; this version reads 1)" in newer
    whole = json.loads(deadletter(kafka, some.prefix, "show", "0", "--output", "jsonl").stdout)
    assert base64.b64decode(whole["value_base64"]) == b"junk \x1b[2J"
    assert (whole["stage"], whole["key_base64"], whole["cut"]) == ("decode", None, False)
    missing = deadletter(kafka, some.prefix, "show", "5")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == (
        f"streamgauge deadletter: there is no dead letter 5 in {some.deadletter}:"
        " run `streamgauge deadletter list` to see all\n"
    )


def test_retry_returns_readable_letters_and_prints_what_it_did(kafka: str, some: Topics) -> None:
    dry = deadletter(kafka, some.prefix, "retry", "--all", "--dry-run")
    assert dry.returncode == 1
    assert dry.stdout == f"would send 2 messages back to {some.segments}, partition 2\n"
    assert segments(kafka, some) == []
    done = deadletter(kafka, some.prefix, "retry", "--all")
    assert done.returncode == 1
    assert done.stdout == f"sent 2 messages back to {some.segments}, partition 2\n"
    assert len(done.stderr.splitlines()) == 3
    assert (
        "1 message not sent (dead letter 0): this version cannot read it either (not a Streamgauge bundle)"
        in done.stderr
    )
    assert "1 message not sent (dead letter 3): this version cannot read it either (bundle format 99" in done.stderr
    assert (
        "1 message not sent (dead letter 4): this version cannot read it either (not a record of this version)"
        in done.stderr
    )
    assert segments(kafka, some) == [(2, BUNDLES[0]), (2, BUNDLES[1])]
    again = deadletter(kafka, some.prefix, "retry", "2", "9")
    assert again.returncode == 1
    assert again.stdout == f"sent 1 message back to {some.segments}, partition 2\n"
    assert again.stderr == f"streamgauge deadletter: there is no dead letter 9 in {some.deadletter}\n"
    clean = deadletter(kafka, some.prefix, "retry", "1", "2")
    assert (clean.returncode, clean.stderr) == (0, "")


def test_records_return_to_their_topic(kafka: str, prefix: str, a_record: Record) -> None:
    topics, value = Topics(prefix), encode_record(a_record)
    put(kafka, topics, (Source(topics.records, 0, 1, b"id"), value, Stage.LEDGER, "version"))
    done = deadletter(kafka, prefix, "retry", "--all", "--stage", "ledger")
    assert (done.returncode, done.stdout) == (0, f"sent 1 message back to {topics.records}\n")
    back: list[Any] = asyncio.run(read_all(kafka, topics.records))
    assert [(one.key, one.value) for one in back] == [(b"id", value)]


def test_a_long_list_is_printed_page_by_page(kafka: str, prefix: str) -> None:
    topics = Topics(prefix)
    put(kafka, topics, *[(Source(topics.segments, 0, at), b"x", Stage.DECODE, "frame") for at in range(501)])
    lines = deadletter(kafka, prefix, "list").stdout.splitlines()
    assert [place for place, line in enumerate(lines) if line.startswith("letter")] == [0, 501]
    assert [int(line.split()[0]) for line in lines if not line.startswith("letter")] == list(range(501))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("retry",), "no dead letters are selected"),
        (("retry", "1", "--all"), "numbers and --all exclude each other: give one of them"),
        (("retry", "1", "--stage", "decode"), "filters and numbers exclude each other"),
        (("list", "--stage", "dekode"), "--stage dekode is not a stage: use one of decode, assemble, record, ledger"),
        (("list", "--since", "-1"), "--since -1 is out of range: give 0 to 31622400 seconds (366 days)"),
        (("list", "--limit", "-1"), "--limit -1 is negative: give 0 or more"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deadletter", *arguments, "--kafka", "127.0.0.1:1"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1


def test_a_missing_topic_and_an_unreachable_broker_are_one_sentence(kafka: str) -> None:
    missing = deadletter(kafka, "nobody-made-these", "list")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "run `streamgauge topics create` first" in missing.stderr
    for job in (("list",), ("retry", "12")):
        away = deadletter("127.0.0.1:1", "any", *job, ask=command)
        assert (away.returncode, away.stdout) == (3, "")
        assert "no Kafka broker answers at 127.0.0.1:1" in away.stderr
        assert len(away.stderr.splitlines()) == 1
    unsaid = command("deadletter", "list")
    assert unsaid.returncode == 2
    assert "--kafka" in unsaid.stderr
