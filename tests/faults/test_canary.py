"""S1: a canary in every place of a request and of a response, through a real tap, Kafka, a worker and the ledger.

With masking on, canaries are found in the spool's file and log, counters, topics, dead letters, ledger, metrics and logs
only where they are kept by contract: kept_by_contract.py lists all of these places.
"""

import asyncio
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import zstandard

from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import FORMAT_VERSION, Read
from streamgauge.kafka.topics import Topics
from streamgauge.spool import NewRow, Spool
from streamgauge.spool.read_counters import read_balance
from streamgauge_demo.provider import Provider, answer
from tests.client import talk
from tests.faults.canaries import Stream, found_in, streams, word
from tests.faults.canary_requests import JSON, Exchange, exchanges
from tests.faults.kept_by_contract import EVENTS, EXCHANGES
from tests.kafka_broker.reading import read_all, write_all
from tests.running import Running, command, start_tap, start_worker, wait_for, wait_until_ready
from tests.streams import bundles_of, chat_event, chat_segments

# First numbers of the exchanges for places of events, and of all others; the third number belongs to none.
FIRST_EVENT, FIRST_EXCHANGE, POISON = 1, 50_000, 99_999
AT_ONCE = 50

Case = Stream | Exchange


def cases() -> dict[int, Case]:
    made: list[Case] = [*streams(FIRST_EVENT), *exchanges(FIRST_EXCHANGE)]
    return {case.number: case for case in made}


def answer_of(case: Case) -> bytes:
    """The response as sent over the wire."""
    if isinstance(case, Stream):
        line, headers, body = "HTTP/1.1 200 OK", [("content-type", case.content_type)], case.body
    else:
        line, headers, body = case.status_line, case.response_headers, case.answer
    head = "".join(f"{name}: {value}\r\n" for name, value in [*headers, ("content-length", str(len(body)))])
    return f"{line}\r\n{head}connection: close\r\n\r\n".encode() + body


def request_of(case: Case) -> bytes:
    """The request. `x-case` tells the provider which response to send; it is not a place of a canary."""
    target, headers, body = case.target, [], b'{"stream":true}'
    if isinstance(case, Exchange):
        headers, body = case.headers, case.body
    fields = [("host", "x"), ("x-case", str(case.number)), JSON, *headers, ("content-length", str(len(body)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"POST /p{target} HTTP/1.1\r\n{head}connection: close\r\n\r\n".encode() + body


def provider(known: dict[int, Case]) -> Provider:
    return Provider({f"{number}": answer(answer_of(case), end="close") for number, case in known.items()})


async def ask_all(url: str, known: dict[int, Case]) -> None:
    """Sends all exchanges through the tap; asserts that each client gets its canary, or the response with it."""
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(case: Case) -> None:
        async with room:
            received = await talk(url, [request_of(case)], to_close=True)
            assert received.raw.endswith(answer_of(case).partition(b"\r\n\r\n")[2]), case.place

    await asyncio.gather(*map(ask, known.values()))


def contents(bundle: bytes) -> Iterator[bytes]:
    """A bundle's bytes, and their decompressed content."""
    yield bundle
    if bundle[:2] == b"SG" and bundle[2] == FORMAT_VERSION:
        yield zstandard.ZstdDecompressor().decompress(bundle[3:])


def on_disk(folder: Path) -> Iterator[bytes]:
    """Every file unchanged, and each bundle of a spool."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
        if path.name == "spool.sqlite":
            with closing(sqlite3.connect(path)) as spool:
                for (value,) in spool.execute("SELECT value FROM rows"):
                    yield from contents(value)


def found(places: Iterator[bytes]) -> set[int]:
    return {number for content in places for number in found_in(content)}


def places_of(numbers: set[int], known: dict[int, Case]) -> tuple[dict[str, set[str]], set[str]]:
    """The places of events, by dialect, and all others."""
    events: dict[str, set[str]] = {}
    others: set[str] = set()
    for case in (known[number] for number in numbers):
        if isinstance(case, Stream):
            events.setdefault(case.dialect, set()).add(case.place)
        else:
            others.add(case.place)
    return events, others


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_s1_canaries_are_found_only_where_the_contract_keeps_them(kafka: str, prefix: str, tmp_path: Path) -> None:
    known = cases()

    with provider(known) as upstream:
        spooled = through_tap({"p": upstream.url}, tmp_path, known)
    everywhere = spooled.union(*through_kafka(kafka, prefix, tmp_path, len(known)))
    events, others = places_of(everywhere, known)
    assert others == EXCHANGES
    assert events.keys() == EVENTS.keys()
    assert {dialect: sorted(places - {*EVENTS[dialect].split()}) for dialect, places in events.items()} == {
        dialect: [] for dialect in EVENTS
    }
    assert {dialect: sorted({*EVENTS[dialect].split()} - places) for dialect, places in events.items()} == {
        dialect: [] for dialect in EVENTS
    }


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_s1_full_capture_keeps_text_of_responses_alone_and_only_up_to_the_records(
    kafka: str, prefix: str, tmp_path: Path
) -> None:
    """With `--capture full` spool and segments hold bodies of responses; of requests, and after them, nothing more."""
    known: dict[int, Case] = {exchange.number: exchange for exchange in exchanges(FIRST_EXCHANGE)}

    with provider(known) as upstream:
        spooled_numbers = through_tap({"p": upstream.url}, tmp_path, known, "--capture", "full")
    numbers = (spooled_numbers, *through_kafka(kafka, prefix, tmp_path, len(known)))
    spooled, stored, shown = (places_of(each, known)[1] for each in numbers)
    assert shown == EXCHANGES - {"line event name"}, "which no record has"
    assert {place for place in spooled | stored if place.startswith(OF_REQUESTS)} <= EXCHANGES
    assert "line data no JSON" in spooled & stored, "it was no full capture"
    assert {place for place in spooled | stored if place.startswith("response header")} <= EXCHANGES


# How places of requests begin.
OF_REQUESTS = ("request", "query", "path", "body")


def through_tap(upstreams: dict[str, str], folder: Path, known: dict[int, Case], *options: str) -> set[int]:
    """Without a broker: everything is in the spool, its file or its log."""
    with start_tap("tap", upstreams, folder / "tap", "--kafka", "127.0.0.1:1", *options) as tap:
        asyncio.run(ask_all(tap.url, known))
        wait_for(lambda: tap.metrics()["streamgauge_tap_reads_waiting"] >= len(known), "all reads seen")
        while_it_runs = [*on_disk(folder), *pages_of(tap), tap.log.encode()]
        assert tap.stop() == 0  # what waited for the recorder is in the spool by then
        assert not any(read_balance(folder / "tap" / "counters").dropped.values()), tap.log
    return found(iter([*while_it_runs, *on_disk(folder), tap.log.encode()]))


def through_kafka(bootstrap: str, prefix: str, folder: Path, count: int) -> tuple[set[int], set[int]]:
    """Into the topics and the ledger; a message that is not a bundle into the dead letters.

    Gives what is found in all of these, and what is found in records, metrics and logs.
    """
    names = Topics(prefix)
    ledger = f"sqlite:///{folder / 'ledger.sqlite'}"
    flags = ["--kafka", bootstrap, "--topic-prefix", prefix]
    with start_worker(bootstrap, prefix, folder / "worker", "--ledger", ledger) as worker:
        wait_until_ready(worker)
        with start_tap("tap", {"p": "http://127.0.0.1:1"}, folder / "tap", *flags) as tap:
            wait_for(lambda: tap.metrics()["streamgauge_tap_reads_waiting"] == 0, "empty spool")
            asyncio.run(write_all(bootstrap, names.segments, [(0, word(POISON).encode())]))
            # Streams that are not an LLM's have no record; these are some of those that a canary made unreadable.
            records = wait_for(lambda: (rows := query(ledger)).count(b"\n") > 0.9 * count and rows, "records")
            wait_for(lambda: asyncio.run(read_all(bootstrap, names.deadletter)), "dead letter")
            pages = [page for one in (tap, worker) for page in pages_of(one)]
            assert tap.stop() == 0
        assert worker.stop() == 0
    logs = [one.log.encode() for one in (tap, worker)]
    shown = [records, *pages, *logs, *on_topics(bootstrap, [names.records])]
    everywhere = [*shown, *on_topics(bootstrap, names.names), *on_disk(folder)]
    return found(iter(everywhere)), found(iter(shown))


def pages_of(process: Running) -> Iterator[bytes]:
    """What the admin port shows: metrics, health, the page's data, and the timeline of each stream that it lists.

    Of the page's data without numbers of ten digits: sums of token counts look like canaries of other places.
    """
    for path in ("/metrics", "/health/live", "/health/ready"):
        yield process.get(path)[1].encode()
    for path in ("/", "/streams"):
        listed = process.get(path)[1]
        yield re.sub(r"\b[0-9]{10}\b", "", listed).encode()
    for one in sorted(set(_UUID.findall(listed))):
        yield process.get(f"/streams/{one}")[1].encode()


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def query(ledger: str) -> bytes:
    return command("ledger", "query", "--ledger", ledger, "--output", "jsonl").stdout.encode()


def on_topics(bootstrap: str, topics: Iterable[str]) -> Iterator[bytes]:
    for name in topics:
        for message in asyncio.run(read_all(bootstrap, name)):
            if message.value == word(POISON).encode():
                continue  # the dead letter contains the message of another producer unchanged
            parts = [message.key or b"", *(value for _, value in message.headers)]
            yield from (*parts, *contents(message.value or b"--"))


def test_the_search_finds_a_canary(tmp_path: Path) -> None:
    """It finds a canary in a file, in a log, and deep in a bundle."""
    (bundle,) = bundles_of([chat_segments(1)[0]])
    event = chat_event(content=word(17))
    bundle.segments[0] = msgspec.structs.replace(bundle.segments[0], reads=[Read(1, 1, 1, event)])
    value = encode_bundle(bundle)
    assert decode_bundle(value).segments[0].reads[0].content == event
    spool = Spool(tmp_path / "spool.sqlite")
    spool.put([NewRow(1, 1, value)], {"x": word(18).encode()})
    assert found(on_disk(tmp_path)) == {17, 18}
    spool.close()
