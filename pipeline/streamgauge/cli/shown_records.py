"""Records as a person reads them: short ids, times, durations, tokens, costs, and a table that fits the terminal.

A short id is the end of a stream id: ids begin with their time, so those of one minute begin alike, and end at random.
`ledger show` takes it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from streamgauge.cli.tables import Column, error_word, member

Json = Mapping[str, Any]

# Characters of a short id: of a million streams one in 4,000 shares it with another one.
SHORT_ID = 8
NOTHING = "-"
# Sizes of counts from which they are written in thousands and millions.
_THOUSAND, _MILLION = 1_000, 1_000_000


def short_id(stream_id: str) -> str:
    """The end of a stream id."""
    return stream_id[-SHORT_ID:]


def duration(seconds: float | None) -> str:
    """A duration, as in 515 ms, 1.9 s or 2 min 5 s; a dash if it is unknown."""
    if seconds is None:
        return NOTHING
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def count(number: int) -> str:
    """A count in at most four characters up to a thousand million, as in 950, 1.2k, 128k or 1.5M."""
    for size, unit in ((_MILLION, "M"), (_THOUSAND, "k")):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def tokens(usage: Json, *, whole: bool = False) -> str:
    """Input and output tokens, as in 12+50; a question mark for an unknown count, a dash if both are unknown. `whole`: all
    digits.
    """
    counts = usage.get("input_tokens"), usage.get("output_tokens")
    if counts == (None, None):
        return NOTHING
    return "+".join("?" if number is None else str(number) if whole else count(number) for number in counts)


def dollars(usd: str | None) -> str:
    """A cost in USD: two decimals from one dollar on, four below; a dash if it is unknown. Only zero is shown as 0."""
    if usd is None:
        return NOTHING
    amount = Decimal(usd)
    if amount >= 1 or not amount:
        return f"{amount:.2f}" if amount else "0"
    return "<0.0001" if amount < Decimal("0.0001") else f"{amount:.4f}"


def ending(record: Json) -> str:
    """How a stream ended: its error, else its outcome; the HTTP status before it if that is none of success."""
    word = error_word(record.get("error")) or str(record["outcome"])
    status = record.get("status_code")
    return f"{status} {word}" if isinstance(status, int) and status >= 300 else word


def model_of(record: Json) -> str | None:
    """The model that answered, else the requested one."""
    name: str | None = record.get("response_model") or record.get("request_model")
    return name


def tokens_a_second(record: Json) -> float | None:
    """Output tokens a second after the first token: by usage, None where `inter_token_latency_s` is unknown or 0."""
    latency_s = member(record, "timing", "inter_token_latency_s")
    return 1 / latency_s if latency_s else None


# The columns of a table of records. What is less important is left out first where a line is too short.
_STREAM, _STARTED = Column("stream"), Column("started (UTC)")
_OTHERS = (
    Column("upstream", rank=3, least=6),
    Column("model", least=12),
    Column("tenant", rank=4, least=6, optional=True),
    Column("outcome", least=12),
    Column("ttft", right=True),
    Column(
        "first text", rank=3, right=True, optional=True
    ),  # there, if some stream began with reasoning or a tool call
    Column("in+out", rank=1, right=True),
    Column("cost", rank=2, right=True),
    Column("duration", rank=5, right=True),
)


def table_of(
    records: Iterable[bytes], tenants: Mapping[str, str], *, whole: bool
) -> tuple[list[Column], list[list[str]]]:
    """The columns and rows of records of a ledger. `tenants`: by credential_id, for records without a tenant of their own.
    `whole`: with whole ids, times and amounts, for an output that is no terminal.
    """
    decoded = [msgspec.json.decode(record) for record in records]
    times = list(_times([record.get("started_at") for record in decoded], whole=whole))
    started = Column(times[0]) if times and not whole else _STARTED
    rows = [
        [record["stream_id"] if whole else short_id(record["stream_id"]), time, *_cells(record, tenants, whole=whole)]
        for record, time in zip(decoded, times[1:], strict=True)
    ]
    return [_STREAM, started, *_OTHERS], rows


def _times(started: Sequence[str | None], *, whole: bool) -> Iterator[str]:
    """The head of the column, then the time of each record: without its day if all have the same one, which is the head."""
    days = {time[:10] for time in started if time}
    yield days.copy().pop() if len(days) == 1 and not whole else _STARTED.name
    for time in started:
        if time is None:
            yield NOTHING
        elif whole:
            yield time
        else:
            yield time[11:19] if len(days) == 1 else f"{time[5:10]} {time[11:19]}"


def _cells(record: Json, tenants: Mapping[str, str], *, whole: bool) -> Iterator[str]:
    usd = member(record, "cost", "usd")
    yield record.get("upstream") or NOTHING
    yield model_of(record) or NOTHING
    yield record.get("tenant") or tenants.get(record.get("credential_id") or "") or NOTHING
    yield ending(record)
    first_token_s, first_text_s = (member(record, "timing", name) for name in ("first_token_s", "first_content_s"))
    yield duration(first_token_s)
    yield (
        duration(first_text_s)
        if first_text_s is not None and first_text_s > (first_token_s or first_text_s)
        else NOTHING
    )
    yield tokens(record["usage"], whole=whole)
    yield (usd or NOTHING) if whole else dollars(usd)
    yield duration(member(record, "timing", "end_s"))
