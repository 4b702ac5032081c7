"""What was seen of each scenario, judged as it comes in. Bounded, however long the demo serves."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from streamgauge_demo.scenario import Scenario
from streamgauge_demo.tally import Seen
from streamgauge_demo.truth import Told
from streamgauge_demo.verdict import Json, client_differences, member, record_differences

# Differences that are kept of one scenario: enough to see what is wrong (lines).
MAX_LINES = 20

# First tokens that are held against the simulator's clock, and models that nobody asked for: the latest ones.
MAX_FIRST_TOKENS = 2_000
MAX_UNKNOWN = 20


class Results:
    """Records and clients' reports, by the model that they asked for."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self.scenarios = tuple(scenarios)
        self._by_model = {scenario.model: scenario for scenario in self.scenarios}
        self.requests: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.endings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.unknown: deque[str] = deque(maxlen=MAX_UNKNOWN)
        self.interrupted: set[str] = set()  # models that were being played when the demo was stopped
        self._lines: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._first_tokens: deque[tuple[str, float]] = deque(maxlen=MAX_FIRST_TOKENS)

    def add_record(self, record: Json) -> None:
        model = str(record.get("request_model"))
        scenario = self._by_model.get(model)
        if scenario is None:
            self.unknown.append(model)
            return
        self.records[model] += 1
        self.endings[model][ending_of(record.get("outcome"), record.get("finish_reason"))] += 1
        self._keep(model, record_differences(scenario, record))
        first = member(record, "timing.first_token_s")
        if isinstance(first, int | float):
            self._first_tokens.append((str(record.get("provider_request_id")), first))

    def add_seen(self, seen: Seen) -> None:
        self.requests[seen.model] += 1
        self._keep(seen.model, client_differences(self._by_model[seen.model], seen))

    def _keep(self, model: str, lines: list[str]) -> None:
        known = self._lines[model]
        known.update(dict.fromkeys(lines[: MAX_LINES - len(known)]))

    @property
    def missing(self) -> int:
        """Requests whose record has not come yet."""
        return sum(max(0, count - self.records[model]) for model, count in self.requests.items())

    def differences(self, scenario: Scenario) -> list[str]:
        """What is not as expected of a scenario, each line once; empty where all is, or where it was interrupted."""
        if scenario.model in self.interrupted:
            return []
        requests, records = self.requests[scenario.model], self.records[scenario.model]
        counts = [f"{records} records of {requests} requests"] if records != requests else []
        return [*counts, *([] if requests else ["no request was sent"]), *self._lines[scenario.model]]

    @property
    def as_expected(self) -> bool:
        return not self.unknown and not any(self.differences(scenario) for scenario in self.scenarios)

    def first_token_errors(self, told: Mapping[str, Told]) -> list[float]:
        """For each stream: time to the first token by the record, less that by the simulator's own clock (seconds), sorted.

        `told` is by request id.
        """
        errors = []
        for request_id, first in self._first_tokens:
            true = told[request_id].first_token_s() if request_id in told else None
            if true is not None:
                errors.append(first - true)
        return sorted(errors)


def ending_of(outcome: object, finish: object) -> str:
    """Outcome and finish reason in a few words."""
    return f"{outcome}, {finish}" if finish else str(outcome)
