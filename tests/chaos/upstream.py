"""The upstream of a chaos run: the demo's simulator, with streams of its own that are long enough to see several kills.

`python -m tests.chaos.upstream` serves until its stdin ends, and says on stdout where.
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

# It starts, and stops, within this on a busy machine (seconds).
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
    """Whether what must be seen of it is known to the last token, and comes without anybody's timeout."""
    by_client = scenario.leave_after is not None
    return scenario.expected.exact and (by_client or scenario.answer.finale is not Finale.SILENT)


# What is asked for: each as often as any other, so that a fifth or so of all streams breaks in one way or another.
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
    """The URL of one that runs as a process, until the context is left."""
    command = [sys.executable, "-m", "tests.chaos.upstream"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said: IO[str] | None = process.stdout
        assert said is not None
        assert process.stdin is not None
        url = said.readline().strip()
        assert url, "the upstream did not start: see above for what it says"
        try:
            yield url
        finally:
            process.stdin.close()
            process.wait(_PATIENCE_S)


if __name__ == "__main__":
    asyncio.run(_serve())
