"""The plain deltas of OpenAI chat and of the legacy completions."""

from streamgauge.core.dialects.deltas import ABSENT, Delta, Deltas, Output
from streamgauge.core.dialects.openai_chat_tables import MODELS, PROVIDER_TIMING, REASONING, REASONING_PARTS

_DELTA = "choices.delta"
_CALL = f"{_DELTA}.tool_calls"
_OTHERS = (*REASONING, REASONING_PARTS)

_UNREAD = frozenset(("created", "system_fingerprint"))
_TIMED = frozenset([path for given, *_ in PROVIDER_TIMING for path in given.split() if path.startswith("usage.")])

CHAT_DELTAS = Deltas(
    kinds=(
        Delta(Output.TEXT, f"{_DELTA}.content"),
        # The first of several names counts.
        *(
            Delta(
                Output.REASONING,
                f"{_DELTA}.{name}",
                unread=frozenset([f"{_DELTA}.{other}" for other in _OTHERS[_OTHERS.index(name) + 1 :]]),
            )
            for name in REASONING
        ),
        Delta(Output.REFUSAL, f"{_DELTA}.refusal"),
        Delta(
            Output.ARGUMENTS,
            f"{_CALL}.function.arguments",
            when={f"{_CALL}.id": ("", None, ABSENT), f"{_CALL}.function.name": ("", None, ABSENT)},
            unread=frozenset((f"{_CALL}.type",)),
            client=True,
        ),
    ),
    when={"object": ("chat.completion.chunk", ABSENT)},
    # Beside a delta, the other members of a choice that may hold output are not read.
    unread=_UNREAD
    | {f"{_DELTA}.role", "choices.message", "choices.text", *(f"choices.{name}" for name in _OTHERS)}
    | {f"{_DELTA}.name", f"{_DELTA}.tool_use_id", f"{_DELTA}.input"},  # of a call, which has a `type`
    choice="choices.index",
    key=f"{_CALL}.index",
    response_id=("id",),
    model=MODELS,
    tier=("service_tier",),
    usage="usage",
    timed=_TIMED,
)

COMPLETIONS_DELTAS = Deltas(
    kinds=(Delta(Output.TEXT, "choices.text"),),
    when={"object": ("text_completion", ABSENT)},
    unread=_UNREAD,
    choice="choices.index",
    response_id=("id",),
    model=MODELS,
    tier=("service_tier",),
    usage="usage",
    timed=_TIMED,
    absent=frozenset(("choices.delta",)),
)
