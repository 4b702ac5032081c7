"""A world whose truth is known: the audit finds each planted error, names it, and finds nothing where nothing is planted."""

import contextlib
import io
import json
import random
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli.main import main
from tests.audit.world.errors import PLANTS, Expected, Plan, Where
from tests.audit.world.exports import DISPLAY, EXPORTS, MAP, Export
from tests.audit.world.records import write_ledger
from tests.audit.world.traffic import TENANTS, World, later, make_world

FIRST, DAYS = "2026-03-01", 7
KINDS = {"uncached": "input_uncached", "cached": "input_cached", "written": "input_cache_write", "output": "output"}
# A line of the result: day, model, key, tier; and a cause.
Key = tuple[str | None, str | None, str | None, str | None, str]
BY_NAME = {export.name: export for export in EXPORTS}


def a_world(export: Export, seed: int, days: int = DAYS, calls: int = 5) -> World:
    tiers = ("standard", "priority") if export.has_tiers else ("standard",)
    return make_world(export.provider, export.models, FIRST, days, seed, tiers, calls)


def audit(folder: Path, plan: Plan, export: Export, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the result for a world and its bill."""
    write_ledger(folder / "ledger.sqlite", plan.world.calls)
    bill = plan.bill(export.each_call)
    (folder / "map.toml").write_text(MAP)
    words = ["audit", "--data-dir", str(folder), "--map", str(folder / "map.toml"), "--output", "json"]
    for number, write in enumerate(export.writers):
        path = folder / f"{number}.invoice"
        path.write_text(write(bill))
        words += ["--invoice", str(path)]
    words += ["--from", plan.world.first, "--to", plan.world.end, "--tolerance-usd", "0", *options]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    assert code in (0, 1), errors.getvalue()
    return code, json.loads(printed.getvalue())


def folded(
    export: Export, expected: Iterable[Expected], world: World
) -> dict[Key, tuple[list[int], Decimal, frozenset[str]]]:
    """What is expected, in the dimensions and kinds of an export, for the days of the period."""
    found: dict[Key, tuple[list[int], Decimal, frozenset[str]]] = {}
    for one in expected:
        if not world.first <= one.where.day < world.end:
            continue
        uncached, cached, written, output = one.parts
        kept = [cached if "cached" in export.splits else 0, written if "written" in export.splits else 0]
        parts = [uncached + cached + written - sum(kept), *kept, output]
        model = DISPLAY[one.where.model] if export.rounds else one.where.model
        key = (
            one.where.day,
            model,
            one.where.tenant if export.has_keys else None,
            one.where.tier if export.has_tiers else None,
            one.cause,
        )
        before = found.get(key, ([0] * 4, Decimal(0), frozenset()))
        found[key] = (
            [a + b for a, b in zip(before[0], parts, strict=True)], before[1] + one.usd, before[2] | one.streams
        )  # fmt: skip
    return found


def explained(result: dict[str, Any]) -> dict[Key, tuple[list[int], Decimal | None, frozenset[str]]]:
    """The explanations of a result, added up by line and cause."""
    found: dict[Key, tuple[list[int], Decimal | None, frozenset[str]]] = {}
    for line in result["lines"]:
        for one in line["explanations"]:
            key = (line["day"], line["model"], line["key"], line["tier"], one["cause"])
            parts, usd, streams = found.get(key, ([0] * 4, Decimal(0), frozenset()))
            more = [one["tokens"][name] or 0 for name in KINDS.values()]
            money = None if usd is None or one["usd"] is None else usd + Decimal(one["usd"])
            found[key] = ([a + b for a, b in zip(parts, more, strict=True)], money, streams | frozenset(one["streams"]))
    return found


def check(export: Export, plan: Plan, code: int, result: dict[str, Any]) -> None:
    """The result names what was planted, to the token, the cent and the stream, and nothing else."""
    wanted, found = folded(export, plan.expected, plan.world), explained(result)
    # An error may cancel itself out in an export that does not tell two cells apart.
    wanted = {key: one for key, one in wanted.items() if any(one[0]) or one[1]}
    assert found.keys() == wanted.keys()
    has_money = any(line["theirs"]["usd"] is not None for line in result["lines"])
    for key, (parts, usd, streams) in wanted.items():
        got_parts, got_usd, got_streams = found[key]
        assert (key, got_parts) == (key, parts)
        assert (key, got_streams) == (key, streams)
        if has_money:
            assert got_usd is not None
            assert abs(got_usd - usd) <= (Decimal("0.03") if export.rounds else Decimal("1e-12")), (key, got_usd, usd)
    check_sums(result)
    assert result["unexplained"]["tokens"]["total"] == 0
    if has_money:
        slack = Decimal("0.02") * len(result["lines"]) if export.rounds else Decimal("1e-12")
        assert abs(Decimal(result["unexplained"]["usd"])) <= slack
    causes = {key[-1] for key in wanted}
    assert {one["cause"] for one in result["causes"]} == causes
    assert (code, result["agrees"]) == ((0, True) if causes <= {"late_across_midnight"} else (1, False))


def check_sums(result: dict[str, Any]) -> None:
    """difference = theirs - ours = explanations + unexplained, in every line and every kind."""
    for line in result["lines"]:
        for name in (*KINDS.values(), "total"):
            values = [line[side]["tokens"][name] for side in ("ours", "theirs", "difference", "unexplained")]
            if None not in values:
                ours, theirs, difference, unexplained = values
                parts = sum(one["tokens"][name] for one in line["explanations"])
                assert difference == theirs - ours == parts + unexplained
        if line["difference"]["usd"] is not None:
            money = sum((Decimal(one["usd"]) for one in line["explanations"]), Decimal(0))
            difference = Decimal(line["theirs"]["usd"]) - Decimal(line["ours"]["usd"])
            assert Decimal(line["difference"]["usd"]) == difference == money + Decimal(line["unexplained"]["usd"])


def can_show(export: Export, cause: str) -> bool:
    """Whether an export lets an audit see a cause at all."""
    has_money = len(export.writers) > 1 or export.provider in ("openrouter", "solora ai")
    if cause == "price_changed":
        return has_money
    if cause == "wrong_unit":
        return has_money and export.has_keys  # a part of a sum in cents is no factor of the sum
    if cause == "tier":
        return export.has_tiers
    if cause == "cache_counted_differently":
        return "cached" in export.splits
    if cause == "duplicate_lines":
        return export.has_keys  # the grouped exports add the rows up
    return True


def where_of(export: Export, rng: random.Random, day: int) -> Where:
    return Where(later(FIRST, day), rng.choice(export.models), rng.choice(TENANTS), "standard")


CASES = [(export.name, cause) for export in EXPORTS for cause in PLANTS if can_show(export, cause)]


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_is_reported_where_nothing_is_planted(name: str, tmp_path: Path) -> None:
    export = BY_NAME[name]
    plan = Plan(a_world(export, 1), random.Random(1))
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)
    assert (code, result["causes"], result["findings"]) == (0, [], [])
    assert result["coverage"] == {export.provider: "1.0000"}
    cells = DAYS * 2 * (2 if export.has_keys else 1) * (2 if export.has_tiers else 1)
    assert len(result["lines"]) == cells


@pytest.mark.parametrize(("name", "cause"), CASES)
def test_a_planted_error_is_found_and_named(name: str, cause: str, tmp_path: Path) -> None:
    export, rng = BY_NAME[name], random.Random(f"{name} {cause}")
    plan = Plan(a_world(export, 2), rng)
    PLANTS[cause](plan, where_of(export, rng, 3))
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)


def pairs() -> Sequence[tuple[str, str]]:
    names = list(PLANTS)
    return [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]


@pytest.mark.parametrize("causes", pairs(), ids=" and ".join)
def test_two_errors_in_one_cell_are_both_found(causes: tuple[str, str], tmp_path: Path) -> None:
    export = BY_NAME["Anthropic analytics"]
    rng = random.Random(" ".join(causes))
    plan = Plan(a_world(export, 3, calls=9), rng)
    where = where_of(export, rng, 3)
    for cause in causes:
        PLANTS[cause](plan, where)
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)
