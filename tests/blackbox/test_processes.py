"""Counts under load, SIGTERM, SIGKILL: what `up` guarantees when it does not see the end of a stream."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from tests.blackbox import provider
from tests.blackbox.client import talk
from tests.blackbox.rig import Rig, chunked, judged
from tests.blackbox.streams import chat
from tests.ports import free_port
from tests.running import start_up

READS = "streamgauge_tap_reads_"
# From the first request to records on disk, on a busy machine (seconds).
SETTLED_S = 2.5


def books(metrics: dict[str, float]) -> dict[str, float]:
    """Reads by state, summed over all reasons."""
    names = ("seen_total", "delivered_total", "dropped_total", "waiting")
    return {
        name: sum(value for key, value in metrics.items() if key.partition("{")[0] == READS + name) for name in names
    }


def balanced(book: dict[str, float]) -> bool:
    return book["seen_total"] == book["delivered_total"] + book["dropped_total"] + book["waiting"]


async def load(rig: Rig, tag: str, streams: int, pause_s: float = 0.002) -> None:
    scripts = {f"{tag} {n}": chunked(*chat("t", ["x" * 20] * 30), pause_s=pause_s) for n in range(streams)}
    await asyncio.gather(*(rig.run(name, "openai-chat", script) for name, script in scripts.items()))


async def standing(rig: Rig, case: str, events: int = 3) -> "asyncio.Task[Any]":
    """A stream that stands open after some events, its exchange to be."""
    script = provider.answer(provider.head(), *map(provider.chunk, chat("t")[:events]), pause_s=0.002, end="leave")
    task = asyncio.ensure_future(rig.run(case, "openai-chat", script, ended="left", exact=False))
    for _ in range(1000):
        played = rig.provider.played.get(case, [])
        if played and len(played[0].sent) > events:
            break
        await asyncio.sleep(0.01)
    return task


def test_reads_are_in_balance_at_every_scrape(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        loading = asyncio.ensure_future(load(rig, "load", 400))
        scrapes = []
        while not loading.done():
            scrapes.append(books(await asyncio.to_thread(rig.running.metrics)))
        await loading
        assert [book for book in scrapes if not balanced(book)] == []
        assert max(book["waiting"] for book in scrapes) > 0
        assert await rig.findings() == []
        await asyncio.sleep(1)  # a checkpoint
        book = books(rig.running.metrics())
        assert book == {"seen_total": book["delivered_total"], "delivered_total": book["delivered_total"],
                        "dropped_total": 0, "waiting": 0}  # fmt: skip
        assert book["seen_total"] >= 400  # of 30 events each: on a busy machine one read brings many

    judged(tmp_path, work)


def test_sigterm_lets_streams_end_and_stores_those_that_do_not(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        go = asyncio.Event()

        async def script(wire: provider.Wire, _: provider.Heard) -> None:
            events = list(map(provider.chunk, chat("t")))
            await wire.play([provider.head(), *events[:3]], 0.002)
            await go.wait()
            await wire.play([*events[3:], provider.LAST_CHUNK], 0.002)

        ending = asyncio.ensure_future(rig.run("ends", "openai-chat", script))
        hanging = await standing(rig, "hangs")
        await asyncio.sleep(0.5)
        rig.running.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        go.set()
        await asyncio.gather(ending, hanging)
        assert await asyncio.to_thread(rig.running.process.wait, 30) == 0
        by = await rig.records()
        one, other = by[rig.exchanges["ends"].trace], by[rig.exchanges["hangs"].trace]
        assert [record["outcome"] for record in one] == ["completed"]
        assert len(other) == 1
        assert other[0]["usage"]["output_tokens"] is None

    judged(tmp_path, work, "--drain-timeout", "6")


def test_sigkill_of_the_main_process_and_a_start_on_the_same_ports(tmp_path: Path) -> None:
    """Open streams are `abandoned`, ended ones are complete; each has one record, and the counts agree."""

    async def work(rig: Rig, urls: dict[str, str], options: list[str]) -> None:
        await load(rig, "before", 20)
        open_streams = [await standing(rig, f"open {number}") for number in range(5)]
        await asyncio.sleep(SETTLED_S)
        rig.running.process.kill()
        rig.running.process.wait()
        ended = await asyncio.gather(*open_streams)
        with_it = start_up(urls, tmp_path / "data", *options)
        rig.running = await asyncio.to_thread(with_it.__enter__)
        try:
            await load(rig, "after", 20)
            by = await rig.records()
            assert {case: len(by.get(one.trace, [])) for case, one in rig.exchanges.items()} == dict.fromkeys(
                rig.exchanges, 1
            )
            for one in ended:
                record = by[one.trace][0]
                assert (record["outcome"], record["usage"]["output_tokens"], record["error"]) == (
                    "abandoned",
                    None,
                    None,
                )
                del rig.exchanges[one.case]
            assert await rig.findings() == []
            assert balanced(books(rig.running.metrics()))
        finally:
            await asyncio.to_thread(with_it.__exit__, None, None, None)

    async def main() -> None:
        async with provider.Provider() as up:
            urls = {"fake": f"http://127.0.0.1:{up.port}"}
            options = ["--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}"]
            context = start_up(urls, tmp_path / "data", *options)
            running = await asyncio.to_thread(context.__enter__)
            try:
                await work(Rig(running, up, "/fake"), urls, options)
            finally:
                await asyncio.to_thread(context.__exit__, None, None, None)

    asyncio.run(main())


def test_t4_a_slow_client_holds_its_upstream_back_and_loses_nothing(tmp_path: Path) -> None:
    """More than all buffers hold; the record has the waiting time."""

    async def work(rig: Rig) -> None:
        script = chunked(*chat("t", ["x" * 1000] * 8000))
        slow = {"slow_s": 0.005, "chunk": 65536, "receive_buffer": 16384}
        one, _ = await asyncio.gather(rig.run("slow", "openai-chat", script, talk=slow), load(rig, "beside", 20))
        # Its later bytes were in the kernel's buffers before the tap read them: times are not compared.
        one.only = frozenset({"outcome", "counts.token_events", "counts.bytes", "counts.client_bytes", "usage.source"})
        assert await rig.findings() == []
        assert (await rig.record(one))["timing"]["client_blocked_s"] > 0
        assert (await talk(rig.port, [b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n"])).status == 404

    judged(tmp_path, work)
