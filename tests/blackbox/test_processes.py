"""Counts under load, SIGTERM, SIGKILL: what `up` guarantees when it does not see the end of a stream."""

import asyncio
import signal
from pathlib import Path
from typing import Any

from streamgauge_demo import provider
from streamgauge_demo.provider import stream
from tests.blackbox.rig import Rig, judged
from tests.client import talk
from tests.events import chat
from tests.ports import free_port
from tests.running import off_loop, start_up

# From the first request to records on disk, on a busy machine (seconds).
SETTLED_S = 2.5


async def load(rig: Rig, tag: str, streams: int, pause_s: float = 0.002) -> None:
    scripts = {f"{tag} {n}": stream(*chat("t", ["x" * 20] * 30), pause_s=pause_s) for n in range(streams)}
    await asyncio.gather(*(rig.run(name, "openai-chat", script) for name, script in scripts.items()))


async def standing(rig: Rig, case: str, events: int = 3) -> "asyncio.Task[Any]":
    """A stream that stands open after some events, its exchange to be."""
    script = provider.answer(provider.head(), *map(provider.chunk, chat("t")[:events]), pause_s=0.002, end="stay")
    task = asyncio.ensure_future(rig.run(case, "openai-chat", script, ended="left", exact=False))
    for _ in range(1000):
        played = rig.provider.played(case)
        if played and len(played[0].sent) > events:
            break
        await asyncio.sleep(0.01)
    return task


def test_reads_are_in_balance_at_every_scrape(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        loading = asyncio.ensure_future(load(rig, "load", 400))
        scrapes = []
        while not loading.done():
            scrapes.append(await asyncio.to_thread(rig.running.reads))
        await loading
        assert max(reads["waiting"] for reads in scrapes) > 0
        assert await rig.findings() == []
        await asyncio.sleep(1)  # a checkpoint
        reads = rig.running.reads()
        assert reads == {"seen": reads["seen"], "delivered": reads["seen"], "waiting": 0}
        assert reads["seen"] >= 400  # of 30 events each: on a busy machine one read brings many

    judged(tmp_path, work)


def test_sigterm_lets_streams_end_and_stores_those_that_do_not(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        go = asyncio.Event()

        async def script(exchange: provider.Exchange) -> None:
            events = list(map(provider.chunk, chat("t")))
            await exchange.play([provider.head(), *events[:3]], 0.002)
            await go.wait()
            await exchange.play([*events[3:], provider.LAST_CHUNK], 0.002)

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

    async def work(rig: Rig) -> None:
        await load(rig, "before", 20)
        open_streams = [await standing(rig, f"open {number}") for number in range(5)]
        await asyncio.sleep(SETTLED_S)
        rig.running.process.kill()
        rig.running.process.wait()
        ended = await asyncio.gather(*open_streams)
        async with off_loop(start_up({"fake": rig.provider.url}, tmp_path / "data", *options)) as rig.running:
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
            rig.running.reads()

    options = ["--listen", f"127.0.0.1:{free_port()}", "--admin", f"127.0.0.1:{free_port()}"]
    judged(tmp_path, work, *options)


def test_t4_a_slow_client_holds_its_upstream_back_and_loses_nothing(tmp_path: Path) -> None:
    """More than all buffers hold; the record has the waiting time."""

    async def work(rig: Rig) -> None:
        script = stream(*chat("t", ["x" * 1000] * 8000))
        slow = {"slow_s": 0.005, "chunk": 65536, "receive_buffer": 16384}
        one, _ = await asyncio.gather(rig.run("slow", "openai-chat", script, talk=slow), load(rig, "beside", 20))
        # Its later bytes were in the kernel's buffers before the tap read them: times are not compared.
        one.only = frozenset({"outcome", "counts.token_events", "counts.bytes", "counts.client_bytes", "usage.source"})
        assert await rig.findings() == []
        assert (await rig.record(one))["timing"]["client_blocked_s"] > 0
        assert (await talk(rig.running.url, [b"GET /nope HTTP/1.1\r\nHost: x\r\n\r\n"])).status == 404

    judged(tmp_path, work)
