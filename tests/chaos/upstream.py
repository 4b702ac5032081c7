"""The upstream of a chaos run: the demo's simulator, with additional streams that are long enough for several kills.

`python -m tests.chaos.upstream` serves until its stdin ends, and prints its address on stdout.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from streamgauge_demo.building import Pace, streamed
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage
from streamgauge_demo.frames import DONE
from streamgauge_demo.scenario import Endpoint, Expected, Finale, Scenario, UsageFacts
from streamgauge_demo.scenarios import SCENARIOS
from streamgauge_demo.simulator import Simulator
from streamgauge_demo.texts import RIVER, words

# Three answers of different length, in tokens; at 10 tokens a second they last from 4 to 15 s.
LENGTHS = (40, 80, 150)
_PACE = Pace(first_s=0.3, gap_s=0.1)
_MODEL = "chaos-1"
_CHAT = ChatFormat(
    head={"id": "chatcmpl-chaos", "object": "chat.completion.chunk", "created": CREATED, "model": _MODEL}
)
_PROMPT_TOKENS = 17

# Time to start or stop on a busy machine (seconds).
_PATIENCE_S = 60.0


def _long(tokens: int) -> Scenario:
    spoken = words(" ".join([RIVER] * (1 + tokens // len(words(RIVER)))))[:tokens]
    usage = chat_usage(_PROMPT_TOKENS, tokens)
    frames = [_CHAT.role(), *_CHAT.text(spoken), _CHAT.finish("stop"), _CHAT.usage(usage), DONE]
    seen = UsageFacts(input=_PROMPT_TOKENS, output=tokens, total=_PROMPT_TOKENS + tokens)
    expected = Expected(outcome="completed", finish="stop", finish_raw="stop", response_model=_MODEL, usage=seen)
    return streamed(f"chaos/{tokens}", Endpoint.CHAT, f"{tokens} tokens", frames, expected, pace=_PACE)


LONG = tuple(map(_long, LENGTHS))


def _answers(scenario: Scenario) -> bool:
    """Whether everything about it is known, to the last token, and it ends without a time-out."""
    return scenario.expected.exact and scenario.answer.finale is not Finale.SILENT


# The requested scenarios: each equally often, so that about a fifth of all streams breaks in some way.
PLAYED: tuple[Scenario, ...] = (*LONG, *filter(_answers, SCENARIOS))
UPSTREAMS = tuple(dict.fromkeys(scenario.upstream for scenario in PLAYED))


async def _serve() -> None:
    simulator = Simulator({scenario.model: scenario for scenario in PLAYED})
    await simulator.start()
    sys.stdout.write(f"{simulator.url}\n")
    sys.stdout.flush()
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    await over.wait()
    await simulator.stop()


@contextmanager
def upstream() -> Iterator[str]:
    """The URL of an upstream that runs as a process, until the context ends."""
    command = [sys.executable, "-m", "tests.chaos.upstream"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        output: IO[str] | None = process.stdout
        assert output is not None
        assert process.stdin is not None
        url = output.readline().strip()
        assert url, "the upstream did not start: see its output above"
        try:
            yield url
        finally:
            process.stdin.close()
            process.wait(_PATIENCE_S)


if __name__ == "__main__":
    asyncio.run(_serve())
