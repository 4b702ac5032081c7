"""The sum of what several processes answer: their open and finished streams, each once, and the numbers of the hour.

Taps and workers see the same streams. Where a worker, `up` or `demo` answers, the finished streams are theirs: a tap counts
only while it is asked. Several of these are asked for their own finished streams (`own=1`), since each may have read the
others' from a shared ledger.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streamgauge.top.words import age, number_of

Json = Mapping[str, Any]

TAP = "tap"
# A period that is shorter than an hour by less than this counts as the hour (seconds).
_ROUNDING_S = 1.0
HOUR_S = 3_600.0
# The lists of finished streams in an answer.
_LISTS = ("recent", "broken", "first_token", "gap")


@dataclass(frozen=True)
class Heard:
    """What a process answered last. `answer` None: nothing yet. `problem`: why it does not answer now; `old_s`: age of the
    answer (seconds); `is_gone`: there is no connection.
    """

    address: str
    answer: Json | None
    problem: str | None = None
    old_s: float = 0.0
    is_gone: bool = False


class Total:
    """The sum of the answers. Times are seconds, costs US dollars.

    `rows`: open streams, then finished ones, each a row of /streams with the index of its process as `at`. `open`, `silent`,
    `not_shown`: numbers of open streams. `outcomes`, `tokens`: counts of the hour by name; `upstreams`: outcomes of each
    upstream; `minutes`: finished streams by minute. `cost_usd` None: no process knows prices.
    """

    def __init__(self, heard: Sequence[Heard]) -> None:
        self.heard = heard
        self.answers = [(at, one.answer) for at, one in enumerate(heard) if one.answer is not None]
        finishing = [answer for _, answer in self.answers if answer["process"] != TAP]
        # The processes whose finished streams and numbers of open ones count.
        self.counted = finishing or [answer for _, answer in self.answers]
        self.open = sum(answer["open"]["total"] for answer in self.counted)
        self.silent = sum(answer["open"]["silent"] for answer in self.counted)
        self.not_shown = sum(answer["open"]["not_shown"] for answer in self.counted)
        self.rows = self._rows(bool(finishing))
        self.streams = self._sum("streams")
        self.with_usage = self._sum("with_usage")
        self.outcomes: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.minutes: Counter[int] = Counter()
        self.upstreams: dict[str, Counter[str]] = {}
        self.costs: Counter[str] = Counter()
        self.cost_usd: float | None = None
        self.priced = 0
        for hour in (answer["hour"] for answer in self.counted):
            self._add(hour)

    def _add(self, hour: Json) -> None:
        for minute, outcomes in zip(hour["minutes"], hour["outcomes"], strict=True):
            self.minutes[minute] += sum(outcomes.values())
            self.outcomes.update(outcomes)
        for tokens in hour["tokens"]:
            self.tokens.update(tokens)
        for one in hour["upstreams"]:
            self.upstreams.setdefault(one["upstream"] or "unknown", Counter()).update(one["outcomes"])
        if hour["cost_usd"] is not None:
            self.priced += hour["priced"]
            self.cost_usd = self.cost_usd or 0.0
            for costs in hour["cost_usd"]:
                self.costs.update(costs)
                self.cost_usd += sum(costs.values())

    def _sum(self, name: str) -> int:
        return sum(answer["hour"][name] for answer in self.counted)

    def _rows(self, counts_finishing: bool) -> list[dict[str, Any]]:
        """Each stream once. The row of a process that assembles all of it wins over that of a tap."""
        taps_first = sorted(self.answers, key=lambda pair: pair[1]["process"] != TAP)
        opened = {row["id"]: {**row, "at": at} for at, answer in taps_first for row in answer["open"]["streams"]}
        finished = {
            row["id"]: {**row, "at": at}
            for at, answer in taps_first
            for name in _LISTS
            for row in answer["worst"].get(name, ())
        }
        rows = {stream: row for stream, row in opened.items() if stream not in finished}
        if counts_finishing:
            taps = {at for at, answer in self.answers if answer["process"] == TAP}
            missed = [row for row in rows.values() if row["at"] in taps]
            if self.not_shown:  # these may be among the streams that a worker did not list
                for row in missed:
                    del rows[row["id"]]
            else:
                self.open += len(missed)
                self.silent += sum(bool(row["is_silent"]) for row in missed)
        return [*rows.values(), *finished.values()]

    def counts(self, answer: Json) -> bool:
        """Whether the finished streams of this answer are in the sum."""
        return any(answer is one for one in self.counted)

    @property
    def now(self) -> str:
        """The newest time of an answer (UTC, RFC 3339); empty without one."""
        return max((str(answer["now"]) for _, answer in self.answers), default="")

    @property
    def counted_s(self) -> float:
        """How long finished streams have been counted by the process that has done so for the longest."""
        return max(map(_counted_s, self.counted), default=0.0)

    @property
    def running_s(self) -> float:
        """How long the process has run that has done so for the longest."""
        return max((_seconds_since(answer, str(answer["since"])) for answer in self.counted), default=0.0)

    @property
    def period(self) -> str:
        """What the finished streams are of: the last hour, or since when they are counted."""
        if self.counted_s >= HOUR_S - _ROUNDING_S:
            return "in the last hour"
        since = min((_since(answer) for answer in self.counted), default="")
        return f"since {since[11:19]} UTC ({age(self.counted_s)})"

    @property
    def a_minute(self) -> float | None:
        """Finished streams a minute since the first one; None in the first minute."""
        if not self.minutes:
            return None
        lasted_s = datetime.fromisoformat(self.now).timestamp() - min(self.minutes)
        return 60 * self.streams / lasted_s if lasted_s >= 60 else None

    def quantile(self, name: str, share: float) -> tuple[float, bool] | None:
        """The quantile of `first_token` or `gaps` (seconds), by linear interpolation in its bucket as in Prometheus's
        histogram_quantile; and whether it lies above the last bound, which it is then. None without streams.
        """
        hours = [answer["hour"][name] for answer in self.counted]
        if not hours:
            return None
        bounds: list[float] = hours[0]["bounds_s"]
        counts = [0] * (len(bounds) + 1)
        for hour in hours:
            for column in hour["counts"]:
                if len(column) == len(counts):  # another version may have other buckets
                    counts = [one + more for one, more in zip(counts, column, strict=True)]
        wanted, below = share * sum(counts), 0
        for bucket, number in enumerate(counts):
            if number and below + number >= wanted:
                if bucket == len(bounds):
                    return bounds[-1], True
                low = bounds[bucket - 1] if bucket else 0.0
                return low + (bounds[bucket] - low) * (wanted - below) / number, False
            below += number
        return None

    @property
    def problems(self) -> Iterator[str]:
        """A sentence about each process that does not answer, or has nothing to show."""
        for one in self.heard:
            if one.problem is not None:
                old = "" if one.answer is None else f" Its streams below are {age(one.old_s)} old."
                lacks = " Its streams are missing here." if one.answer is None and len(self.heard) > 1 else ""
                yield f"{one.problem}.{old}{lacks}"
            elif one.answer is not None and one.answer["unready"]:
                yield f"{one.answer['process']} {one.address} shows no streams now: {one.answer['unready']}."
            elif one.answer is not None and one.answer["missed_bundles"]:
                missed = number_of(one.answer["missed_bundles"], "bundle")
                yield f"{one.answer['process']} {one.address} left out {missed} that came too fast to assemble."

    @property
    def hints(self) -> Iterator[str]:
        """A sentence about each thing that the numbers do not include, and where it is."""
        if self.counted and all(answer["process"] == TAP for answer in self.counted):
            yield (
                "A tap counts finished streams only while it is asked: the workers have all of them."
                " Give their admin ports (streamgauge top TAP WORKER ...), or read the ledger."
            )
        if len(self.counted) == 1 and self.counted[0]["partitions"] is not None:
            yield "Other workers have the streams of other partitions: give their admin ports, too."
        if len(self.counted) > 1:
            for one in self.heard:
                if one.answer is not None and self.counts(one.answer) and self._is_younger(one.answer):
                    since = _since(one.answer)[11:19]
                    counted = age(_counted_s(one.answer))
                    yield f"{one.answer['process']} {one.address} counts only since {since} UTC ({counted})."

    def _is_younger(self, answer: Json) -> bool:
        return self.counted_s - _counted_s(answer) > 60

    @property
    def responses(self) -> tuple[int, int, Counter[str]] | None:
        """All responses that taps have counted: seen, with a record, and those without, by reason. None: no tap answers."""
        of_taps = [answer["responses"] for _, answer in self.answers if answer.get("responses")]
        if not of_taps:
            return None
        reasons: Counter[str] = Counter()
        for one in of_taps:
            for row in one["not_captured"]:
                reasons[row["reason"]] += row["responses"]
        return sum(one["seen"] for one in of_taps), sum(one["captured"] for one in of_taps), reasons

    def members(self, name: str) -> list[Json]:
        """Rows of a list (`rate_limits`, `budgets`) of all processes, each once."""
        rows: list[Json] = []
        for answer in self.counted:
            rows += [row for row in answer[name] if row not in rows]
        return rows

    @property
    def audit(self) -> Json | None:
        """The audit that was kept last."""
        audits = [answer["audit"] for answer in self.counted if answer["audit"] is not None]
        return max(audits, key=lambda audit: str(audit["saved_at"]), default=None)


def _since(answer: Json) -> str:
    return str(answer["hour"].get("since", answer["since"]))  # an earlier version has no `since` of the hour


def _counted_s(answer: Json) -> float:
    return _seconds_since(answer, _since(answer))


def _seconds_since(answer: Json, time: str) -> float:
    now = datetime.fromisoformat(answer["now"])
    return max((now - datetime.fromisoformat(time)).total_seconds(), 0.0)
