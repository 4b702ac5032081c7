"""Finished streams for the page, read from the ledger of its process: numbers of the last hour, lists, and single streams.

All reads use the ledger's index on the start. The streams of all processes that share a ledger are read, so each of them
shows the same numbers.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from streamgauge.cli.settings_files import SettingsFiles
from streamgauge.core.record import Record
from streamgauge.core.resumption import STORED_ENDPOINTS
from streamgauge.ledger import Filter, Ledger, LedgerUnavailableError, Total
from streamgauge.ledger.cost import COST_DIGITS
from streamgauge.live.answers import Finished, Group, KnownCost, Numbers, Row, Summary, Timeline
from streamgauge.live.mailbox import NoAnswerError
from streamgauge.live.stored import BROKEN_OUTCOMES, FINE, FIRST_LIST, KEYS, Choice, Wanted, without_age
from streamgauge.live.summaries import latency_of
from streamgauge.live.view import row_of, timeline_of
from streamgauge.runtime.redaction import without_password
from streamgauge.settings.declarations import Settings

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
_USD = 10.0**-COST_DIGITS
# The newest streams of an hour whose times are read: about half a second. Sums are of all streams.
MAX_TIMED = 50_000
# Groups of each kind in an answer.
MAX_GROUPS = 50
# Answers may take this share of a CPU: until enough time has passed, the request gets the last answer again, for at least
# LEAST_S, and at most MOST_S, after which it is too old beside the list of streams (seconds). MAX_KEPT: different requests
# with a last answer.
SHARE = 0.05
LEAST_S = 1.0
MOST_S = 15.0
MAX_KEPT = 16
# How old a last answer may be for a page that is opened (seconds).
RECENT_S = 60.0
# How long the numbers of yesterday are kept (seconds): they change by a minute of 60.
YESTERDAY_S = 60.0


class _Timing(msgspec.Struct):
    first_token_s: float | None = None
    first_content_s: float | None = None
    inter_token_latency_s: float | None = None
    burst: bool | None = None


class _Usage(msgspec.Struct):
    source: str


class _Integrity(msgspec.Struct):
    complete: bool


class _Timed(msgspec.Struct):
    """The members of a record that its times need. Others are skipped, which makes decoding fast."""

    started_at: str
    outcome: str
    timing: _Timing
    usage: _Usage
    integrity: _Integrity
    upstream: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    tenant: str | None = None
    credential_id: str | None = None
    resumed_from: str | None = None
    endpoint: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether its times count, as in the metrics (`live/finished.py`)."""
        is_resumed = self.resumed_from is not None or self.endpoint in STORED_ENDPOINTS
        return self.integrity.complete and not is_resumed


class _WithCost(msgspec.Struct):
    cost: KnownCost | None = None


class _OfRecord(msgspec.Struct):
    started_at: str | None = None


_TIMED = msgspec.json.Decoder(_Timed)
_RECORD = msgspec.json.Decoder(Record)
_COST = msgspec.json.Decoder(_WithCost)
_STARTED = msgspec.json.Decoder(_OfRecord)


class _Answers(Generic[Question, Answer]):
    """The last answers to some questions. A question that comes again gets the last answer until the time that it took is a
    SHARE of the time since, and for LEAST_S. One answer is computed at a time.
    """

    def __init__(self, compute: Callable[[Question], Answer], clock: Callable[[], float]) -> None:
        self._compute, self._clock = compute, clock
        self._lock = threading.Lock()
        # Each with the time until which it is given, and that of its end.
        self._kept: dict[Question, tuple[Answer, float, float]] = {}

    def __call__(self, question: Question) -> Answer:
        with self._lock:
            began_s = self._clock()
            answer, until_s, ended_s = self._kept.pop(question, (None, began_s, began_s))
            if answer is None or until_s <= began_s:
                try:
                    answer = self._compute(question)
                except LedgerUnavailableError as error:
                    raise NoAnswerError(str(error)) from error
                ended_s = self._clock()
                until_s = ended_s + min(max(LEAST_S, (ended_s - began_s) / SHARE), MOST_S)
            self._kept[question] = answer, until_s, ended_s
            if len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            return answer

    def recent(self, question: Question) -> Answer | None:
        """The last answer, if it is at most RECENT_S old, without waiting for one that is computed now."""
        answer, _, ended_s = self._kept.get(question, (None, 0.0, float("-inf")))
        return answer if self._clock() - ended_s <= RECENT_S else None


class LedgerStreams:
    """See StoredStreams. `name`: the ledger in sentences, without a password; `tenants`: by credential_id.

    `wall`: seconds since 1970; `clock`: monotonic seconds. The process has stored streams since it was made.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        tenants: Mapping[str, str],
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._name = name
        self._tenants = dict(tenants)
        self._wall, self._clock = wall, clock
        self._began_us = _microseconds(wall())
        self._summaries = _Answers(self._summary, clock)
        self._lists = _Answers(self._finished, clock)
        self._yesterday: OrderedDict[Choice, tuple[float, Numbers]] = OrderedDict()

    def summary(self, choice: Choice) -> Summary:
        """See StoredStreams.summary."""
        return self._summaries(choice)

    def finished(self, wanted: Wanted) -> Finished:
        """See StoredStreams.finished."""
        return self._lists(wanted)

    def recent(self) -> tuple[Summary, Finished] | None:
        """See StoredStreams.recent."""
        summary, finished = self._summaries.recent(()), self._lists.recent(FIRST_LIST)
        return None if summary is None or finished is None else (summary, finished)

    def stream(self, stream: UUID) -> Timeline | None:
        """See StoredStreams.stream."""
        try:
            return self._stream(str(stream))
        except LedgerUnavailableError as error:
            raise NoAnswerError(str(error)) from error

    def _summary(self, choice: Choice) -> Summary:
        now_us = _microseconds(self._wall())
        first_us = self._first_us()
        known_us = self._began_us if first_us is None else min(first_us, self._began_us)
        hour = _Hour(self._ledger, self._filter(choice, now_us - _HOUR_US, now_us), self._tenants)
        groups = {key: hour.groups(at) for at, key in enumerate(KEYS)}
        minutes = sorted(hour.minutes)
        return Summary(
            source="ledger",
            ledger=self._name,
            now=_rfc3339(now_us),
            since=_rfc3339(max(known_us, now_us - _HOUR_US)),
            hour=hour.numbers(),
            yesterday=self._of_yesterday(choice, now_us) if known_us <= now_us - _HOUR_US - _DAY_US else None,
            minutes=minutes,
            streams=[hour.minutes[minute] for minute in minutes],
            broken=[hour.broken[minute] for minute in minutes],
            upstreams=groups["upstream"][:MAX_GROUPS],
            models=groups["model"][:MAX_GROUPS],
            tenants=groups["tenant"][:MAX_GROUPS],
            not_shown={key: len(of_key) - MAX_GROUPS for key, of_key in groups.items() if len(of_key) > MAX_GROUPS},
        )

    def _of_yesterday(self, choice: Choice, now_us: int) -> Numbers:
        now_s = self._clock()
        read_s, numbers = self._yesterday.get(choice, (0.0, None))
        if numbers is None or now_s - read_s > YESTERDAY_S:
            until_us = now_us - _DAY_US
            numbers = _Hour(self._ledger, self._filter(choice, until_us - _HOUR_US, until_us), self._tenants).numbers()
            self._yesterday[choice] = now_s, numbers
            if len(self._yesterday) > MAX_KEPT:
                self._yesterday.popitem(last=False)
        return numbers

    def _first_us(self) -> int | None:
        """The start of the oldest record."""
        for record in self._ledger.query(1):
            started_at = _STARTED.decode(record).started_at
            return None if started_at is None else _started_us(started_at)
        return None

    def _filter(self, choice: Choice, since_us: int | None, until_us: int | None) -> Filter:
        return Filter(since_us, until_us, where=tuple(choice), tenants=tuple(sorted(self._tenants.items())))

    def _finished(self, wanted: Wanted) -> Finished:
        now_us = _microseconds(self._wall())
        records = self._records(without_age(wanted, now_us / 1e6))
        rows = [row for record in records[: wanted.limit] if (row := self._row(record, now_us)) is not None]
        return Finished("ledger", rows, len(records) > wanted.limit)

    def _records(self, wanted: Wanted) -> list[bytes]:
        """The wanted records, and one more if there are more."""
        since, until = wanted.since_s, wanted.until_s
        chosen = self._filter(
            wanted.choice,
            None if since is None else _microseconds(since),
            None if until is None else _microseconds(until),
        )
        if wanted.outcomes:
            chosen = replace(chosen, where=(*chosen.where, *(("outcome", outcome) for outcome in wanted.outcomes)))
        limit = wanted.limit + 1
        if wanted.part:
            return self._with_id(wanted, limit)
        if wanted.sort == "newest":
            return list(self._ledger.query(limit, chosen, newest_first=True))
        if wanted.sort == "slowest":
            return self._ledger.slowest(limit, chosen)
        outcomes = wanted.outcomes or (*FINE, *BROKEN_OUTCOMES)
        records: list[bytes] = []
        if broken := [outcome for outcome in outcomes if outcome not in FINE]:
            records += self._ledger.query(limit, _with_outcomes(chosen, broken), newest_first=True)
        if len(records) < limit and (fine := [outcome for outcome in outcomes if outcome in FINE]):
            records += self._ledger.slowest(limit - len(records), _with_outcomes(chosen, fine))
        return records

    def _with_id(self, wanted: Wanted, limit: int) -> list[bytes]:
        """An id that is asked for is found whatever the times of the request are: links and alerts are older than an hour."""
        found = self._ledger.with_id(wanted.part, limit)
        rows = [(self._row(record, 0), record) for record in found]
        keys = dict(wanted.choice)
        return [
            record
            for row, record in rows
            if row is not None
            and all(getattr(row, key) == value for key, value in keys.items())
            and (not wanted.outcomes or row.outcome in wanted.outcomes)
        ]

    def _row(self, stored: bytes, now_us: int) -> Row | None:
        """None for a record that this version cannot read: one of an earlier version may lack members."""
        try:
            record = _RECORD.decode(stored)
        except msgspec.DecodeError:
            return None
        row = row_of(record)
        row.tenant = record.tenant or self._tenants.get(record.credential_id or "")
        cost = _COST.decode(stored).cost
        row.cost_usd = None if cost is None else cost.usd
        if record.started_at is not None and record.timing.end_s is not None:
            row.ended_s_ago = max(
                round(now_us / 1e6 - _started_us(record.started_at) / 1e6 - record.timing.end_s, 3), 0
            )
        return row

    def _stream(self, name: str) -> Timeline | None:
        found = [record for part in self._ledger.parts for record in part.stored_among([name]).values()]
        if not found:
            return None
        stored = found[0]
        row = self._row(stored, _microseconds(self._wall()))
        if row is None:
            return None
        record = _RECORD.decode(stored)
        timeline = timeline_of(row, record, [], record.counts.reads)
        timeline.source = "ledger"
        timeline.cost = _COST.decode(stored).cost
        if timeline.cost is None and (costs := self._ledger.costs_of(name)):
            timeline.cost_unknown = costs[-1].unknown
        return timeline


def ledger_streams(settings: Settings, ledger: Ledger, files: SettingsFiles) -> LedgerStreams:
    """The finished streams of a process's ledger. Raises UsageFault for a file of tenants that cannot be read."""
    return LedgerStreams(ledger, without_password(settings.ledger_url), files.tenants())


class _Times:
    """The measured times of some streams (seconds)."""

    def __init__(self) -> None:
        self.first_token: list[float] = []
        self.first_text: list[float] = []
        self.per_token: list[float] = []

    def add(self, record: _Timed) -> None:
        timing = record.timing
        if timing.first_token_s is not None:
            self.first_token.append(timing.first_token_s)
        if timing.first_content_s is not None:
            self.first_text.append(timing.first_content_s)
        pace_s = timing.inter_token_latency_s
        if pace_s is not None and not timing.burst and record.usage.source == "final":
            self.per_token.append(pace_s)


class _Hour:
    """The numbers of the streams of a filter: sums by SQL, times from the newest MAX_TIMED records."""

    def __init__(self, ledger: Ledger, chosen: Filter, tenants: Mapping[str, str]) -> None:
        self._totals = ledger.totals((*KEYS, "outcome"), chosen)
        self._times: dict[tuple[str | None, ...], _Times] = {}
        self.minutes: Counter[int] = Counter()
        self.broken: Counter[int] = Counter()
        for minute, outcome, streams in ledger.minutes(chosen):
            self.minutes[minute] += streams
            self.broken[minute] += 0 if outcome in FINE else streams
        self._times_since: str | None = None
        for number, stored in enumerate(ledger.query(MAX_TIMED, chosen, newest_first=True), 1):
            try:
                record = _TIMED.decode(stored)
            except msgspec.DecodeError:
                continue  # of an earlier version, which stored what this one refuses: the sums have it
            if number == MAX_TIMED < self.minutes.total():
                self._times_since = record.started_at
            if record.is_measured:
                tenant = record.tenant or tenants.get(record.credential_id or "")
                keys = record.upstream, record.response_model or record.request_model, tenant
                self._times.setdefault(keys, _Times()).add(record)

    def numbers(self) -> Numbers:
        numbers = _numbers(self._totals, self._times.values())
        numbers.times_since = self._times_since
        return numbers

    def groups(self, at: int) -> list[Group]:
        """The numbers by one of KEYS, those with most streams first."""
        totals: dict[str | None, list[Total]] = {}
        for total in self._totals:
            totals.setdefault(_text(total.keys[at]), []).append(total)
        times: dict[str | None, list[_Times]] = {}
        for keys, of_keys in self._times.items():
            times.setdefault(keys[at], []).append(of_keys)
        groups = [Group(name, _numbers(of_name, times.get(name, ()))) for name, of_name in totals.items()]
        return sorted(groups, key=lambda group: (-group.numbers.streams, group.name or ""))


def _numbers(totals: Sequence[Total], times: Iterable[_Times]) -> Numbers:
    outcomes: Counter[str] = Counter()
    for total in totals:
        outcomes[str(total.keys[-1])] += total.streams
    times = list(times)
    return Numbers(
        streams=outcomes.total(),
        outcomes=dict(outcomes),
        first_token=latency_of([time_s for one in times for time_s in one.first_token]),
        first_text=latency_of([time_s for one in times for time_s in one.first_text]),
        per_token=latency_of([time_s for one in times for time_s in one.per_token]),
        input_tokens=_sum([total.input_tokens for total in totals]),
        output_tokens=_sum([total.output_tokens for total in totals]),
        cost_usd=None if (cost := _sum([total.cost for total in totals])) is None else cost * _USD,
        priced=sum(total.with_cost for total in totals),
        unpriced=sum(total.without_price for total in totals),
    )


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _text(key: str | int | None) -> str | None:
    return None if key is None else str(key)


def _with_outcomes(chosen: Filter, outcomes: Sequence[str]) -> Filter:
    others = tuple(pair for pair in chosen.where if pair[0] != "outcome")
    return replace(chosen, where=(*others, *(("outcome", outcome) for outcome in outcomes)))


def _microseconds(wall_s: float) -> int:
    return int(wall_s * 1e6)


def _started_us(started_at: str) -> int:
    return _microseconds(datetime.fromisoformat(started_at).timestamp())


def _rfc3339(wall_us: int) -> str:
    return datetime.fromtimestamp(wall_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
