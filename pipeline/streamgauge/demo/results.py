"""What was seen of each scenario: records from the tap, and what the clients saw."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from streamgauge.demo.scenario import Scenario
from streamgauge.demo.tally import Seen
from streamgauge.demo.truth import Told
from streamgauge.demo.verdict import Json, client_differences, member, record_differences


class Results:
    """Records and clients' reports, by the model that they asked for."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self.scenarios = tuple(scenarios)
        self.records: defaultdict[str, list[Json]] = defaultdict(list)
        self.seen: defaultdict[str, list[Seen]] = defaultdict(list)
        self.interrupted: set[str] = set()  # models that were being played when the demo was stopped

    def add_record(self, record: Json) -> None:
        self.records[str(record.get("request_model"))].append(record)

    def add_seen(self, seen: Seen) -> None:
        self.seen[seen.model].append(seen)

    @property
    def missing(self) -> int:
        """Requests whose record has not come yet."""
        return sum(max(0, len(seen) - len(self.records[model])) for model, seen in self.seen.items())

    def differences(self, scenario: Scenario) -> list[str]:
        """What is not as expected of a scenario, each line once; empty where all is, or where it was interrupted."""
        if scenario.model in self.interrupted:
            return []
        records, seen = self.records[scenario.model], self.seen[scenario.model]
        lines = [f"{len(records)} records of {len(seen)} requests"] if len(records) != len(seen) else []
        if not seen:
            lines.append("it was not played")
        for one in seen:
            lines += client_differences(scenario, one)
        for record in records:
            lines += record_differences(scenario, record)
        return list(dict.fromkeys(lines))

    def unknown(self) -> list[str]:
        """Models of records that no scenario asked for."""
        known = {scenario.model for scenario in self.scenarios}
        return [model for model, records in self.records.items() if records and model not in known]

    @property
    def as_expected(self) -> bool:
        return not self.unknown() and not any(self.differences(scenario) for scenario in self.scenarios)

    def first_token_errors(self, told: Mapping[str, Told]) -> list[float]:
        """For each stream: time to the first token by the record, less that by the simulator's own clock (seconds), sorted.

        `told` is by request id.
        """
        errors = []
        for record in (record for records in self.records.values() for record in records):
            truth = told.get(str(record.get("provider_request_id")))
            said, true = member(record, "timing.first_token_s"), truth.first_token_s() if truth else None
            if isinstance(said, int | float) and true is not None:
                errors.append(said - true)
        return sorted(errors)
