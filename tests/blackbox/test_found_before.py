"""Earlier findings of this comparison, each kept as a test."""

import asyncio
import os
import signal
from pathlib import Path

from streamgauge_demo import provider
from streamgauge_demo.provider import stream
from tests.blackbox.errors import SECRET
from tests.blackbox.rig import Rig, judged
from tests.blackbox.test_processes import SETTLED_S, load
from tests.events import DONE, chat, data
from tests.processes import children
from tests.running import wait_for


def test_a_stream_of_another_kind_that_ends_with_done_has_no_record(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        events = [data({"id": "run_1", "object": "thread.run"}, "thread.run.created"), DONE]
        one = await rig.run("assistants", "openai-chat", stream(*events), path="/v1/threads/t/runs")
        await rig.run("chat", "openai-chat", stream(*chat("t")))
        del rig.exchanges["assistants"]
        records = await rig.records()
        await asyncio.sleep(1)
        assert one.trace not in records

    judged(tmp_path, work)


def test_a_bare_error_counts_without_its_blank_line(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        bare = f'{{\n  "error": {{\n    "code": 503,\n    "message": "{SECRET}"\n  }}\n}}\n'.encode()
        one = await rig.run("bare", "openai-chat", stream(*chat("t")[:3], bare))
        assert (await rig.record(one))["outcome"] == "stream_error"

    judged(tmp_path, work)


async def collector_killed(rig: Rig) -> None:
    """Streams that run while the collector is killed; all of them end."""
    await load(rig, "before", 10)
    await asyncio.sleep(SETTLED_S)
    loading = asyncio.ensure_future(load(rig, "during", 60, pause_s=0.06))
    await asyncio.to_thread(
        wait_for, lambda: rig.running.metrics()["streamgauge_open_streams"] >= 5, "streams that it knows"
    )
    pid = collector_of(rig)
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(0.6)  # so that what it received in between is lost with it
    os.kill(pid, signal.SIGKILL)
    await loading


def collector_of(rig: Rig) -> int:
    (pid,) = [pid for pid, line in children(rig.running.process.pid).items() if "cli.collector" in line]
    return pid


def test_a_record_whose_reads_were_dropped_says_so(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        await collector_killed(rig)
        records = await rig.records()
        cut = [found[0] for found in records.values() if found[0]["outcome"] != "completed"]
        assert cut
        assert [record["integrity"]["complete"] for record in cut] == [False] * len(cut)

    judged(tmp_path, work)


def test_an_incomplete_head_is_a_502(tmp_path: Path) -> None:
    async def work(rig: Rig) -> None:
        script = provider.answer(b"HTTP/1.1 200 OK\r\nContent-Ty", end="close")
        assert (await rig.run("half", "openai-chat", script)).received.status == 502

    judged(tmp_path, work)
