"""The metrics of finished streams under OpenTelemetry's names for generative AI, where `--otel-names` asks for them.

One row holds the name of each convention: v1.41 of semantic-conventions, and `latest`, the main branch of
semantic-conventions-genai (2026-11), which renamed inference and counts tokens. A name gets the suffix of its unit, as
OpenTelemetry's own exporter for Prometheus writes it. Names keep their dots for scrapers that read UTF-8 names; for others
dots are underscores (`text_format.py`). What a record adds follows the rules of `observe.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from streamgauge.core.assembly.timing import GAP_BOUNDS_S
from streamgauge.core.record import Record
from streamgauge.core.token_kinds import growth
from streamgauge.metrics.declarations import Kind, Metric, MetricSource
from streamgauge.metrics.observation import Observation, sum_of_gaps
from streamgauge.metrics.resumed_usage import Addition
from streamgauge.metrics.table import CALL_BOUNDS_S, DURATION_BOUNDS_S, FIRST_TOKEN_BOUNDS_S

OtelNames = Literal["off", "v1.41", "latest"]

# The bounds that the convention advises, to 16 million.
TOKEN_COUNT_BOUNDS = tuple(4.0**power for power in range(13))

_OPERATION = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
_FAILABLE = (*_OPERATION, "error.type")
_MODAL = (*_OPERATION, "gen_ai.token.modality")


@dataclass(frozen=True, eq=False)
class OtelRow:
    """One metric. `v1_41`, `latest`: its name in each convention, None where it has none. `ours`: the name in our table."""

    v1_41: str | None
    latest: str | None
    ours: str | None
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()

    def metric(self, names: OtelNames) -> Metric | None:
        """The metric as this convention names it; None if it does not have it."""
        name = {"off": None, "v1.41": self.v1_41, "latest": self.latest}[names]
        if name is None:
            return None
        suffix = "_total" if self.kind is Kind.COUNTER else "_seconds" if self.unit == "seconds" else ""
        return Metric(
            name + suffix, self.kind, self.help, self.unit, self.labels, self.bounds, MetricSource.STREAM
        )  # fmt: skip


_CLIENT, _INFERENCE = "gen_ai.client.operation", "gen_ai.client.inference"

DURATION = OtelRow(
    f"{_CLIENT}.duration", f"{_INFERENCE}.duration", "streamgauge_stream_duration_seconds",
    Kind.HISTOGRAM, "seconds", "Duration of the operation.", _FAILABLE, DURATION_BOUNDS_S,
)  # fmt: skip
FIRST_CHUNK = OtelRow(
    f"{_CLIENT}.time_to_first_chunk", f"{_INFERENCE}.time_to_first_chunk", None,
    Kind.HISTOGRAM, "seconds", "Time from the first byte of the request to the first event of the response.",
    _OPERATION, FIRST_TOKEN_BOUNDS_S,
)  # fmt: skip
PER_CHUNK = OtelRow(
    f"{_CLIENT}.time_per_output_chunk", f"{_INFERENCE}.time_per_output_chunk", "streamgauge_inter_chunk_latency_seconds",
    Kind.HISTOGRAM, "seconds", "Time between successive events with output.",
    _OPERATION, GAP_BOUNDS_S,
)  # fmt: skip
TOKEN_USAGE = OtelRow(
    "gen_ai.client.token.usage", None, None,
    Kind.HISTOGRAM, "tokens", "Input and output tokens of an operation.",
    (*_OPERATION, "gen_ai.token.type"), TOKEN_COUNT_BOUNDS,
)  # fmt: skip
INPUT_TOKENS = OtelRow(
    None, f"{_INFERENCE}.usage.input_tokens", "streamgauge_usage_tokens_total",
    Kind.COUNTER, "tokens", "Input tokens, cached ones included.", _MODAL,
)  # fmt: skip
OUTPUT_TOKENS = OtelRow(
    None, f"{_INFERENCE}.usage.output_tokens", "streamgauge_usage_tokens_total",
    Kind.COUNTER, "tokens", "Output tokens, reasoning included.", _MODAL,
)  # fmt: skip
CACHE_READ = OtelRow(
    None, f"{_INFERENCE}.usage.cache_read.input_tokens", "streamgauge_usage_tokens_total",
    Kind.COUNTER, "tokens", "Input tokens that were read from the provider's cache: a part of input_tokens.", _MODAL,
)  # fmt: skip
CACHE_WRITE = OtelRow(
    None, f"{_INFERENCE}.usage.cache_write.input_tokens", "streamgauge_usage_tokens_total",
    Kind.COUNTER, "tokens", "Input tokens that were written to the provider's cache: a part of input_tokens.", _MODAL,
)  # fmt: skip
REASONING = OtelRow(
    None, f"{_INFERENCE}.usage.reasoning.output_tokens", "streamgauge_usage_tokens_total",
    Kind.COUNTER, "tokens", "Output tokens of reasoning: a part of output_tokens.", _MODAL,
)  # fmt: skip
OPERATION_INPUT = OtelRow(
    None, f"{_INFERENCE}.operation.input_tokens", None,
    Kind.HISTOGRAM, "tokens", "Input tokens of an operation.", _FAILABLE, TOKEN_COUNT_BOUNDS,
)  # fmt: skip
OPERATION_OUTPUT = OtelRow(
    None, f"{_INFERENCE}.operation.output_tokens", None,
    Kind.HISTOGRAM, "tokens", "Output tokens of an operation.", _FAILABLE, TOKEN_COUNT_BOUNDS,
)  # fmt: skip

# Of calls of tools, not of streams.
MCP_DURATION = OtelRow(
    "mcp.client.operation.duration", "mcp.client.operation.duration", "streamgauge_call_duration_seconds",
    Kind.HISTOGRAM, "seconds", "Duration of a request or notification of the Model Context Protocol.",
    ("mcp.method.name", "gen_ai.tool.name", "error.type"), CALL_BOUNDS_S,
)  # fmt: skip

OTEL_TABLE: tuple[OtelRow, ...] = (
    DURATION, FIRST_CHUNK, PER_CHUNK, TOKEN_USAGE, INPUT_TOKENS, OUTPUT_TOKENS, CACHE_READ, CACHE_WRITE, REASONING,
    OPERATION_INPUT, OPERATION_OUTPUT, MCP_DURATION,
)  # fmt: skip


def otel_metrics(names: OtelNames) -> tuple[Metric, ...]:
    """The metrics of a convention; none for `off`."""
    return tuple(metric for row in OTEL_TABLE if (metric := row.metric(names)) is not None)


# The dialect of a record -> the operation, and the provider. By the convention the provider is the owner of the format,
# which other servers may use, too. A provider that it does not name has a name of ours.
OPERATIONS: Mapping[str | None, tuple[str, str]] = {
    "openai-chat": ("chat", "openai"),
    "openai-completions": ("text_completion", "openai"),
    "openai-responses": ("chat", "openai"),
    "anthropic-messages": ("chat", "anthropic"),
    "anthropic-completions": ("text_completion", "anthropic"),
    "gemini": ("generate_content", "gcp.gemini"),
    "gemini-interactions": ("generate_content", "gcp.gemini"),
    "cohere-v2": ("chat", "cohere"),
    "watsonx": ("text_completion", "ibm.watsonx.ai"),
    "tgi-native": ("text_completion", "tgi"),
    "llama-cpp-native": ("text_completion", "llama_cpp"),
    "replicate": ("text_completion", "replicate"),
    "ollama": ("chat", "ollama"),
    "bedrock-converse": ("chat", "aws.bedrock"),
    "bedrock-text": ("text_completion", "aws.bedrock"),
    "cohere-v1": ("chat", "cohere"),
    "sourcegraph": ("text_completion", "sourcegraph"),
    "dashscope": ("chat", "dashscope"),
    "workers-ai": ("chat", "workers_ai"),
    "triton": ("text_completion", "triton"),
    "openai-realtime": ("generate_content", "openai"),
    "openai-transcription": ("generate_content", "openai"),
    "openai-speech": ("generate_content", "openai"),
    "openai-images": ("generate_content", "openai"),
}
UNKNOWN_OPERATION = ("unknown", "unknown")

# The modality of tokens where the provider counts audio apart, and of all others.
_AUDIO, _OTHER_MODALITY = "audio", "unknown"
# A counter of input or output -> what the record reports of the whole, and of its audio.
_WHOLES = ((INPUT_TOKENS, "input", "audio_input"), (OUTPUT_TOKENS, "output", "audio_output"))
_PARTS = (
    (CACHE_READ, "cached"),
    (CACHE_WRITE, "cache_write"),
    (REASONING, "reasoning"),
)


class OtelObserver:
    """Adds records to the metrics of one convention. A row that the convention does not have is passed over."""

    def __init__(self, names: OtelNames) -> None:
        self._metrics: Mapping[OtelRow, Metric | None] = {row: row.metric(names) for row in OTEL_TABLE}

    def observe(self, observation: Observation, record: Record, addition: Addition, *, measured: bool) -> None:
        """Adds one record. `measured`: its times may enter histograms. `addition`: its tokens, without resumed ones."""
        operation, provider = OPERATIONS.get(record.dialect, UNKNOWN_OPERATION)
        labels = (operation, provider, observation.model)
        failure = error_type(record.error, record.outcome)
        if measured:
            self._time(DURATION, observation, record.timing.end_s, *labels, failure)
            self._latencies(observation, record, labels)
        if record.resumed_from is None and not addition.before:
            usage = record.usage
            for row, tokens in (
                (OPERATION_INPUT, usage.input_tokens),
                (OPERATION_OUTPUT, usage.output_tokens),
            ):
                self._time(row, observation, tokens, *labels, failure)
            self._time(TOKEN_USAGE, observation, usage.input_tokens, *labels, "input")
            self._time(TOKEN_USAGE, observation, usage.output_tokens, *labels, "output")
        self._tokens(observation, addition, (operation, provider, addition.model))

    def _latencies(self, observation: Observation, record: Record, labels: tuple[str, ...]) -> None:
        timing = record.timing
        if record.streaming:
            self._time(FIRST_CHUNK, observation, timing.first_event_s, *labels)
        if (metric := self._metrics[PER_CHUNK]) is not None and not timing.burst:
            observation.gaps(metric, timing.gaps, sum_of_gaps(timing), *labels)

    def _tokens(self, observation: Observation, addition: Addition, labels: tuple[str, ...]) -> None:
        for row, whole, audio in _WHOLES:
            before, after = (_by_modality(side, whole, audio) for side in (addition.before, addition.after))
            added = growth(before, after)
            for modality in after:
                self._count(row, observation, added.get(modality, 0), *labels, modality)
        for row, part in _PARTS:
            if part in addition.after:
                self._count(row, observation, addition.tokens.get(part, 0), *labels, _OTHER_MODALITY)

    def _time(self, row: OtelRow, observation: Observation, value: float | None, *labels: object) -> None:
        if (metric := self._metrics[row]) is not None:
            observation.time(metric, value, *labels)

    def _count(self, row: OtelRow, observation: Observation, value: int, *labels: object) -> None:
        """Adds to a counter. A reported 0 is a series of 0."""
        if (metric := self._metrics[row]) is not None:
            observation.add(metric, value, *labels)


def _by_modality(reported: Mapping[str, int], whole: str, audio: str) -> dict[str, int]:
    """The tokens of one side by modality; empty if they are not reported."""
    total = reported.get(whole)
    if total is None:
        return {}
    audio_tokens = min(reported.get(audio, 0), total)
    return {**({_AUDIO: audio_tokens} if audio in reported else {}), _OTHER_MODALITY: total - audio_tokens}


class Failure(Protocol):
    """The error of a record."""

    type: str | None
    code: str | None
    status: int | None


def error_type(error: Failure | None, outcome: str) -> str | None:
    """The error type of a failed operation: the error's type, code or status, else the outcome; None if it completed."""
    if error is not None:
        return error.type or error.code or (str(error.status) if error.status is not None else outcome)
    return None if outcome == "completed" else outcome
