"""Many worlds whose truth is known: a company's traffic, with one plant, two or none, and how an audit judges each."""

import contextlib
import io
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from streamgauge.cli.main import main
from tests.audit.world.background import MODELS, company
from tests.audit.world.errors import Plan, Where
from tests.audit.world.exports import EXPORTS, MAP, Export
from tests.audit.world.hard_plants import HARD_PLANTS
from tests.audit.world.records import write_ledger
from tests.audit.world.traffic import TENANTS, later
from tests.audit.world.verdicts import Judge, Tally

FIRST, DAYS = "2026-03-01", 5
NAMES = ("OpenAI API", "Anthropic API", "Anthropic analytics", "OpenRouter activity", "OpenRouter grouped", "FOCUS")
HARD_EXPORTS = {one.name: replace(one, models=MODELS[one.provider]) for one in EXPORTS if one.name in NAMES}


class Case(NamedTuple):
    """A world: its seed, export, size, and the plants in it."""

    seed: int
    export: str
    per_day: int
    plants: tuple[str, ...]
    place: str

    def __str__(self) -> str:
        plants = " and ".join(self.plants) or "nothing"
        return f"{self.seed}: {self.export}, {self.per_day} calls a day, {plants} ({self.place})"


def can_show(export: Export, plant: str) -> bool:
    """Whether an export lets an audit see a plant at all."""
    if plant == "tier":
        return export.has_tiers
    if plant == "time zone":
        return not export.each_call
    if plant == "other key":
        return export.has_keys
    if plant in ("duplicate", "wrong unit"):
        return export.has_keys
    if plant == "cache":
        return "cached" in export.splits
    return True


PLACES = ("same cell", "same model", "other model")


def cases(count: int) -> Iterator[Case]:
    """As many cases: each export in turn, every fourth time with 3,000 calls a day, with one plant, two or none."""
    rng = random.Random(58)
    names = list(HARD_EXPORTS)
    for seed in range(count):
        export = HARD_EXPORTS[names[seed % len(names)]]
        possible = [name for name in HARD_PLANTS if can_show(export, name)]
        number = rng.choices((0, 1, 2), (1, 5, 6))[0]
        plants = tuple(rng.sample(possible, number))
        if "time zone" in plants:  # a stream that is moved cannot have another cause, too
            plants = ("time zone",)
        yield Case(seed, export.name, 3_000 if seed // len(names) % 4 == 3 else 300, plants, rng.choice(PLACES))


def plan_of(case: Case) -> Plan:
    """The world of a case with its plants."""
    export = HARD_EXPORTS[case.export]
    world = company(export, FIRST, DAYS, case.per_day, case.seed)
    rng = random.Random(case.seed)
    plan = Plan(world, rng)
    models = rng.sample(export.models, 2)
    where = Where(later(FIRST, rng.randint(1, DAYS - 2)), models[0], rng.choice(TENANTS), "standard")
    for number, plant in enumerate(case.plants):
        if number and case.place != "same cell":
            tenant, day = rng.choice(TENANTS), later(FIRST, rng.randint(1, DAYS - 2))
            where = Where(day, models[case.place == "other model"], tenant, "standard")
        HARD_PLANTS[plant](plan, where._replace(model=export.models[1]) if plant == "reasoning" else where)
    return plan


def audited(case: Case, folder: Path) -> tuple[Tally, dict[str, Any], float]:
    """What became of the causes of a case, its result, and the seconds of the audit."""
    export = HARD_EXPORTS[case.export]
    plan = plan_of(case)
    write_ledger(folder / "ledger.sqlite", plan.world.calls)
    bill = plan.bill(export.each_call)
    (folder / "map.toml").write_text(MAP)
    words = ["audit", "--data-dir", str(folder), "--map", str(folder / "map.toml"), "--output", "json"]
    for number, write in enumerate(export.writers):
        path = folder / f"{number}.invoice"
        path.write_text(write(bill))
        words += ["--invoice", str(path)]
    words += ["--from", plan.world.first, "--to", plan.world.end]
    begun = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    seconds = time.monotonic() - begun
    assert code in (0, 1), errors.getvalue()
    result = json.loads(printed.getvalue())
    return Judge(export, plan, case.plants, result).judge(), result, seconds
