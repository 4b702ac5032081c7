"""The upstream of a chaos run: the demo's simulator, with additional streams that are long enough for several kills.

Its scenarios are an argument of the simulator (`PROGRAM`).
"""

from streamgauge_demo.building import Pace, streamed
from streamgauge_demo.formats.chat import CREATED, ChatFormat, chat_usage
from streamgauge_demo.frames import DONE
from streamgauge_demo.scenario import Endpoint, Expected, Finale, Scenario, UsageFacts
from streamgauge_demo.scenarios import SCENARIOS as OF_DEMO
from streamgauge_demo.texts import RIVER, words

# Three answers of different length, in tokens; at 10 tokens a second they last from 4 to 15 s.
LENGTHS = (40, 80, 150)
_PACE = Pace(first_s=0.3, gap_s=0.1)
_MODEL = "chaos-1"
_CHAT = ChatFormat(
    head={"id": "chatcmpl-chaos", "object": "chat.completion.chunk", "created": CREATED, "model": _MODEL}
)
_PROMPT_TOKENS = 17


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
SCENARIOS: tuple[Scenario, ...] = (*LONG, *filter(_answers, OF_DEMO))
UPSTREAMS = tuple(dict.fromkeys(scenario.upstream for scenario in SCENARIOS))

# The module and the arguments of its process (`tests.running.program`), whose first line is its URL.
PROGRAM = ("streamgauge_demo.simulator", "--scenarios", "tests.chaos.upstream", "--until-stdin-ends")
