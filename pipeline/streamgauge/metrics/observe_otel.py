"""What one record adds to the metrics under OpenTelemetry's names. The rules are those of `observe.py`."""

from collections.abc import Mapping
from typing import Protocol

from streamgauge.core.record import Record
from streamgauge.core.token_kinds import growth
from streamgauge.metrics import table_otel
from streamgauge.metrics.declarations import Metric
from streamgauge.metrics.observation import Observation, sum_of_gaps
from streamgauge.metrics.resumed_usage import Addition
from streamgauge.metrics.table_otel import OPERATIONS, OTEL_TABLE, UNKNOWN_OPERATION, OtelNames, OtelRow

# The modality of tokens where the provider counts audio apart, and of all others.
_AUDIO, _OTHER_MODALITY = "audio", "unknown"
# A counter of input or output -> what the record reports of the whole, and of its audio.
_WHOLES = ((table_otel.INPUT_TOKENS, "input", "audio_input"), (table_otel.OUTPUT_TOKENS, "output", "audio_output"))
_PARTS = (
    (table_otel.CACHE_READ, "cached"),
    (table_otel.CACHE_WRITE, "cache_write"),
    (table_otel.REASONING, "reasoning"),
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
            self._time(table_otel.DURATION, observation, record.timing.end_s, *labels, failure)
            self._latencies(observation, record, labels)
        if record.resumed_from is None and not addition.before:
            usage = record.usage
            for row, tokens in (
                (table_otel.OPERATION_INPUT, usage.input_tokens),
                (table_otel.OPERATION_OUTPUT, usage.output_tokens),
            ):
                self._time(row, observation, tokens, *labels, failure)
            self._time(table_otel.TOKEN_USAGE, observation, usage.input_tokens, *labels, "input")
            self._time(table_otel.TOKEN_USAGE, observation, usage.output_tokens, *labels, "output")
        self._tokens(observation, addition, (operation, provider, addition.model))

    def _latencies(self, observation: Observation, record: Record, labels: tuple[str, ...]) -> None:
        timing = record.timing
        if record.streaming:
            self._time(table_otel.FIRST_CHUNK, observation, timing.first_event_s, *labels)
        if (metric := self._metrics[table_otel.PER_CHUNK]) is not None and not timing.burst:
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
    spoken = min(reported.get(audio, 0), total)
    return {**({_AUDIO: spoken} if audio in reported else {}), _OTHER_MODALITY: total - spoken}


class Failure(Protocol):
    """The error of a record."""

    type: str | None
    code: str | None
    status: int | None


def error_type(error: Failure | None, outcome: str) -> str | None:
    """Why the operation failed: the error's type, code or status, else the outcome; None if it completed."""
    if error is not None:
        return error.type or error.code or (str(error.status) if error.status is not None else outcome)
    return None if outcome == "completed" else outcome
