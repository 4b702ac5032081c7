"""The results of each scenario, checked as they arrive. Memory is bounded, however long the demo runs."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.tally import Seen
from streamgauge_demo.truth import Told
from streamgauge_demo.verdict import Json, client_differences, member, record_differences

# Limit of the differences kept for one scenario (lines): enough to see what is wrong.
MAX_LINES = 20

# Limits of the latest first tokens that are compared with the simulator's clock, and of the latest unknown models.
MAX_FIRST_TOKENS = 2_000
MAX_UNKNOWN = 20


class Results:
    """Records and clients' results, by the model of the request."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self.scenarios = tuple(scenarios)
        self._by_model = {scenario.model: scenario for scenario in self.scenarios}
        self.requests: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.unknown: deque[str] = deque(maxlen=MAX_UNKNOWN)
        self.interrupted: set[str] = set()  # models of requests that ran when the demo was stopped
        self._lines: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._first_tokens: deque[tuple[str, float]] = deque(maxlen=MAX_FIRST_TOKENS)

    def add_record(self, record: Json) -> None:
        """Counts a record from the tap, and keeps its differences from the scenario."""
        model = str(record.get("request_model"))
        scenario = self._by_model.get(model)
        if scenario is None:
            self.unknown.append(model)
            return
        self.records[model] += 1
        self.outcomes[model][outcome_text(record.get("outcome"), record.get("finish_reason"))] += 1
        self._keep(model, record_differences(scenario, record))
        first = member(record, "timing.first_token_s")
        if isinstance(first, int | float):
            self._first_tokens.append((str(record.get("provider_request_id")), first))

    def add_seen(self, seen: Seen) -> None:
        """Counts a request, and keeps the differences of what its client received."""
        self.requests[seen.model] += 1
        self._keep(seen.model, client_differences(self._by_model[seen.model], seen))

    def _keep(self, model: str, lines: list[str]) -> None:
        known = self._lines[model]
        known.update(dict.fromkeys(lines[: MAX_LINES - len(known)]))

    @property
    def missing(self) -> int:
        """The number of requests without a record."""
        return sum(max(0, count - self.records[model]) for model, count in self.requests.items())

    def differences(self, scenario: Scenario) -> list[str]:
        """The differences from a scenario's expected results, each line once; empty if there are none or it was
        interrupted.
        """
        if scenario.model in self.interrupted:
            return []
        requests, records = self.requests[scenario.model], self.records[scenario.model]
        counts = [f"{records} records of {requests} requests"] if records != requests else []
        return [*counts, *([] if requests else ["no request was sent"]), *self._lines[scenario.model]]

    @property
    def as_expected(self) -> bool:
        """Whether all records, requests and clients are as the scenarios expect."""
        return not self.unknown and not any(self.differences(scenario) for scenario in self.scenarios)

    def summary(self, truths: Mapping[str, Told]) -> dict[str, object]:
        """The results as JSON: the totals, and each scenario's expected and recorded outcomes. `truths` is by request id."""
        scenarios = [
            {
                "provider": scenario.upstream,
                "format": scenario.dialect,
                "scenario": scenario.name,
                "title": scenario.title,
                "expected": outcome_text(scenario.expected.outcome, scenario.expected.finish),
                "seen": dict(sorted(self.outcomes[scenario.model].items())),
                "differences": self.differences(scenario),
            }
            for scenario in self.scenarios
        ]
        return {
            "requests": self.requests.total(),
            "records": self.records.total(),
            "as_expected": self.as_expected,
            "unknown_models": list(self.unknown),
            "first_token_errors_s": self.first_token_errors(truths),
            "scenarios": scenarios,
        }

    def first_token_errors(self, truths: Mapping[str, Told]) -> list[float]:
        """For each stream: time to first token by the record, minus that by the simulator's clock (seconds), sorted.

        `truths` is by request id.
        """
        errors = []
        for request_id, first in self._first_tokens:
            true = truths[request_id].first_token_s() if request_id in truths else None
            if true is not None:
                errors.append(first - true)
        return sorted(errors)


def outcome_text(outcome: object, finish: object) -> str:
    """The outcome, and the finish reason if there is one: `completed, stop`."""
    return f"{outcome}, {finish}" if finish else str(outcome)
