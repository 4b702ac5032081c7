"""A world whose truth is known: the audit finds each planted error, names it, and finds nothing where nothing is planted."""

import contextlib
import io
import json
import random
import re
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from streamgauge.cli.main import main
from tests.audit.world.bill import Bill
from tests.audit.world.errors import PLANTS, Expected, Plan, Where, is_across_midnight
from tests.audit.world.exports import DISPLAY, EXPORTS, MAP, Export
from tests.audit.world.records import write_ledger
from tests.audit.world.traffic import TENANTS, World, later, make_world
from tests.each import each

FIRST, DAYS = "2026-03-01", 7
KINDS = {"uncached": "input_uncached", "cached": "input_cached", "written": "input_cache_write", "output": "output"}
# A line of the result: day, model, key, tier; and a cause.
Key = tuple[str | None, str | None, str | None, str | None, str]
BY_NAME = {export.name: export for export in EXPORTS}


def a_world(export: Export, seed: int, days: int = DAYS, calls: int = 5) -> World:
    tiers = ("standard", "priority") if export.has_tiers else ("standard",)
    return make_world(export.provider, export.models, FIRST, days, seed, tiers, calls)


def audit(
    folder: Path, plan: Plan, export: Export, *options: str, bill: Bill | None = None
) -> tuple[int, dict[str, Any]]:
    """The exit code and the result for a world and its bill, or another one."""
    write_ledger(folder / "ledger.sqlite", plan.world.calls)
    bill = bill or plan.bill(export.each_call)
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
        undecided = [{**one, "cause": " or ".join(one["one_of"])} for one in line["alternatives"]]
        for one in [*line["explanations"], *undecided]:
            key = (line["day"], line["model"], line["key"], line["tier"], one["cause"])
            parts, usd, streams = found.get(key, ([0] * 4, Decimal(0), frozenset()))
            more = [one["tokens"][name] or 0 for name in KINDS.values()]
            money = None if usd is None or one["usd"] is None else usd + Decimal(one["usd"])
            found[key] = ([a + b for a, b in zip(parts, more, strict=True)], money, streams | frozenset(one["streams"]))
    return found


def check(export: Export, plan: Plan, code: int, result: dict[str, Any], *, is_decided: bool = False) -> None:
    """The result names what was planted, to the token, the cent and the stream, and nothing else.

    is_decided: the aborted streams of the plan are decided without a count of requests.
    """
    wanted, found = folded(export, plan.expected, plan.world), explained(result)
    # An error may cancel itself out in an export that does not tell two cells apart.
    wanted = {key: one for key, one in wanted.items() if any(one[0]) or one[1]}
    open_keys = {key for key in wanted if is_undecided(export, key[-1]) and not is_decided}
    undecided = {(*key[:-1], UNSEEN_OR_ABORTED) for key in open_keys}
    wanted = {(*key[:-1], UNSEEN_OR_ABORTED) if key in open_keys else key: one for key, one in wanted.items()}
    assert (found.keys() - wanted.keys(), wanted.keys() - found.keys()) == (set(), set())
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
    causes = {key[-1] for key in wanted.keys() - undecided}
    assert {one["cause"] for one in result["causes"]} == causes
    agrees = not undecided and causes <= {"late_across_midnight"}
    assert (code, result["agrees"]) == ((0, True) if agrees else (1, False))


def check_sums(result: dict[str, Any]) -> None:
    """difference = theirs - ours = explanations + undecided + unexplained, in every line and every kind."""
    for line in result["lines"]:
        for name in (*KINDS.values(), "total"):
            values = [line[side]["tokens"][name] for side in ("ours", "theirs", "difference", "unexplained")]
            if None not in values:
                ours, theirs, difference, unexplained = values
                parts = sum(one["tokens"][name] for one in [*line["explanations"], *line["alternatives"]])
                assert line["undecided"]["tokens"][name] == sum(one["tokens"][name] for one in line["alternatives"])
                assert difference == theirs - ours == parts + unexplained
        if line["difference"]["usd"] is not None:
            money = sum((Decimal(one["usd"]) for one in [*line["explanations"], *line["alternatives"]]), Decimal(0))
            difference = Decimal(line["theirs"]["usd"]) - Decimal(line["ours"]["usd"])
            assert Decimal(line["difference"]["usd"]) == difference == money + Decimal(line["unexplained"]["usd"])


# What is not decided where requests are not counted: a stream without usage is billed, or a request that no tap saw.
UNSEEN_OR_ABORTED = "aborted_without_usage or coverage"


def is_undecided(export: Export, cause: str) -> bool:
    """Whether an export does not let an audit decide this cause, where it is alone in its cell."""
    return cause == "aborted_without_usage" and not export.has_requests


def can_show(export: Export, cause: str) -> bool:
    """Whether an export lets an audit see a cause at all."""
    has_money = len(export.writers) > 1 or export.provider in ("openrouter", "solora ai")
    if cause == "price_changed":
        return has_money
    if cause == "wrong_unit":
        return has_money and export.has_keys  # a part of a sum in cents is no factor of the sum
    if cause == "reasoning_counted_differently":
        return export.has_keys  # of one key, in a sum over all keys
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
# Every fifth case and pair is tried, and all with the profile `many`. Five has no divisor in common with the number of
# causes, so that each cause is tried.
EVERY = {"many": 1}.get(settings.get_current_profile_name(), 5)
# Exports without a count of requests whose aborted stream the sizes of bodies decide: a body has six bytes a token of input,
# no other cell has requests that no tap saw, and 29 streams with usage are loaded. Without tiers they are 19: 20 are needed.
SIZED = {"Anthropic API"}


def test_each_cause_and_each_export_is_in_a_case_that_is_tried() -> None:
    exports, causes = zip(*CASES[::EVERY], strict=True)
    assert (set(exports), set(causes)) == (set(BY_NAME), set(PLANTS))
    assert {cause for pair in pairs()[::EVERY] for cause in pair} == set(PLANTS)


@each(BY_NAME)
def test_nothing_is_reported_where_nothing_is_planted(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    export = BY_NAME[name]
    plan = Plan(a_world(export, 1), random.Random(1))
    code, result = audit(tmp_path_factory.mktemp("audit"), plan, export)
    check(export, plan, code, result)
    assert (code, result["causes"], result["findings"]) == (0, [], [])
    assert result["coverage"] == {export.provider: "1.0000"}
    cells = DAYS * 2 * (2 if export.has_keys else 1) * (2 if export.has_tiers else 1)
    assert len(result["lines"]) == cells


@pytest.mark.timeout(600)
@each(CASES[::EVERY])
def test_a1_a_planted_error_is_found_and_named(case: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    name, cause = case
    export, rng = BY_NAME[name], random.Random(f"{name} {cause}")
    plan = Plan(a_world(export, 2), rng)
    PLANTS[cause](plan, where_of(export, rng, 3))
    code, result = audit(tmp_path_factory.mktemp("audit"), plan, export)
    check(export, plan, code, result, is_decided=name in SIZED)


# Pairs that leave the same traces as one of their causes, or as none, in an invoice that adds requests up: a lack and a
# surplus in one cell cancel each other out, and two surpluses are one; what only bounds limit is combined with no other
# cause. With a row for each request they are told apart.
NEEDS_ROWS = (
    {"missing_from_invoice", "coverage"},
    {"missing_from_invoice", "aborted_without_usage"},
    {"coverage", "aborted_without_usage"},
    *(
        {bounded, exact}
        for bounded in ("coverage", "aborted_without_usage")
        for exact in (
            "reasoning_counted_differently",
            "cache_counted_differently",
            "duplicate_lines",
            "retries_billed_twice",
        )
    ),
)
# Two unknown factors of one amount; and what runs across midnight in UTC does not in the zone of the shifted days.
UNDECIDED = ({"wrong_unit", "price_changed"}, {"late_across_midnight", "time_zone_shift"})


def pairs() -> Sequence[tuple[str, str]]:
    names = list(PLANTS)
    both = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return [pair for pair in both if set(pair) not in UNDECIDED]


@pytest.mark.timeout(600)
@each(pairs()[::EVERY], " and ".join)
def test_two_errors_in_one_cell_are_both_found(
    causes: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    export = BY_NAME["OpenRouter activity" if set(causes) in NEEDS_ROWS else "Anthropic analytics"]
    rng = random.Random(" ".join(causes))
    plan = Plan(a_world(export, 3, calls=9), rng)
    where = where_of(export, rng, 3)
    for cause in causes:
        PLANTS[cause](plan, where)
    code, result = audit(tmp_path_factory.mktemp("audit"), plan, export)
    check(export, plan, code, result)


def of_the_period(plan: Plan, export: Export) -> Bill:
    """The bill without the days either side: as it is if only the period was exported."""
    bill = plan.bill(export.each_call)
    return Bill([row for row in bill.rows if plan.world.first <= row.day < plan.world.end])


@each(BY_NAME)
def test_an_invoice_of_the_period_alone_agrees(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    export = BY_NAME[name]
    plan = Plan(a_world(export, 4), random.Random(4))
    code, result = audit(tmp_path_factory.mktemp("audit"), plan, export, bill=of_the_period(plan, export))
    check(export, plan, code, result)
    assert code == 0


@each(product(BY_NAME, [-1, DAYS - 1]))
def test_a_late_stream_at_the_edge_of_the_period_is_found(
    case: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its other day is not in the invoice: what is billed in the period, or lacks there, is a stream of that midnight."""
    name, day = case
    export, rng = BY_NAME[name], random.Random(name)
    plan = Plan(a_world(export, 4), rng)
    PLANTS["late_across_midnight"](plan, where_of(export, rng, day))
    code, result = audit(tmp_path_factory.mktemp("audit"), plan, export, bill=of_the_period(plan, export))
    check(export, plan, code, result)


def test_a_year_with_every_cause(tmp_path: Path) -> None:
    """Each cause twice, in another week each; the price changes at the end, since it stays changed."""
    export, rng = BY_NAME["Anthropic API"], random.Random(11)
    plan = Plan(a_world(export, 11, days=365, calls=4), rng)
    causes = [cause for cause in PLANTS if cause not in ("time_zone_shift", "price_changed")] * 2
    for week, cause in enumerate(causes):
        PLANTS[cause](plan, where_of(export, rng, 7 + 14 * week))
    PLANTS["price_changed"](plan, where_of(export, rng, 350))
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)
    # Requests are not counted, and there are some that no tap saw, so an aborted stream may also be one of these.
    assert {one["cause"] for one in result["causes"]} == {*causes, "price_changed"} - {"aborted_without_usage"}
    assert len(result["lines"]) == 365 * 2 * 2 * 2


def test_an_alias_is_its_snapshot(tmp_path: Path) -> None:
    export = BY_NAME["OpenAI API"]
    plan = Plan(a_world(export, 7), random.Random(7))
    bill = plan.bill(each_call=False)
    bill.rows = [replace(row, model={"gpt-4o-2024-08-06": "gpt-4o"}.get(row.model, row.model)) for row in bill.rows]
    code, result = audit(tmp_path, plan, export, bill=bill)
    assert (code, result["causes"]) == (0, [])
    assert {line["model"] for line in result["lines"]} == {"gpt-4o", "o3-2025-04-16"}


def test_rows_with_equal_keys_and_other_numbers_are_added_up(tmp_path: Path) -> None:
    export = BY_NAME["OpenAI dashboard"]
    plan = Plan(a_world(export, 8), random.Random(8))
    bill = plan.bill(each_call=False)
    halves = []
    for row in bill.rows:
        first = tuple(count // 3 for count in row.parts)
        costs = tuple(cost / 4 for cost in row.costs)
        halves.append(replace(row, parts=first, costs=costs, requests=1))
        rest = tuple(count - part for count, part in zip(row.parts, first, strict=True))
        others = tuple(cost - part for cost, part in zip(row.costs, costs, strict=True))
        halves.append(replace(row, parts=rest, costs=others, requests=row.requests - 1))
    code, result = audit(tmp_path, plan, export, bill=Bill(halves))
    assert (code, result["causes"]) == (0, [])


def test_equal_rows_without_which_the_cell_would_not_agree_are_no_duplicates(tmp_path: Path) -> None:
    export = BY_NAME["OpenAI usage alone"]
    plan = Plan(a_world(export, 8), random.Random(8))
    twins = []
    for call in list(plan.world.calls):
        parts = tuple(count // 2 * 2 for count in call.parts)
        plan.world.change(call, parts=parts)
    for row in plan.bill(each_call=False).rows:
        half = replace(row, parts=tuple(count // 2 for count in row.parts), requests=2)
        twins += [half, half]
    code, result = audit(tmp_path, plan, export, bill=Bill(twins))
    assert (code, result["causes"]) == (0, [])


def test_where_a_price_is_unknown_only_tokens_are_compared(tmp_path: Path) -> None:
    export, rng = BY_NAME["OpenAI API"], random.Random(9)
    plan = Plan(a_world(export, 9), rng)
    PLANTS["missing_from_invoice"](plan, where_of(export, rng, 3))
    audit(tmp_path, plan, export)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as database:
        database.create_function("unpriced", 1, lambda text: re.sub(rb'"cost":.*$', b'"cost":null}', text))
        database.execute(
            "UPDATE records SET record = unpriced(record), cost_input = NULL, cost_output = NULL, price_source = NULL"
        )
    database.close()
    code, result = audit(tmp_path, plan, export)
    assert (code, [one["cause"] for one in result["causes"]]) == (1, ["missing_from_invoice"])
    assert result["causes"][0]["usd"] is None
    assert result["unexplained"] == {"tokens": dict.fromkeys([*KINDS.values(), "total"], 0), "usd": None}
    for line in result["lines"]:
        assert line["ours"]["usd"] is line["difference"]["usd"] is line["unexplained"]["usd"] is None
        assert line["theirs"]["usd"] is not None


def test_charges_of_no_model_stand_by_themselves(tmp_path: Path) -> None:
    """Each has its own name: it is no tokens."""
    export = BY_NAME["OpenAI API"]
    plan = Plan(a_world(export, 10), random.Random(10))
    audit(tmp_path, plan, export)
    path = tmp_path / "1.invoice"
    page = json.loads(path.read_text())
    row = {"object": "organization.costs.result", "project_id": None}
    page["data"][1]["results"] += [
        row | {"amount": {"value": "0.25", "currency": "usd"}, "line_item": "web search tool calls"},
        row | {"amount": {"value": "-5", "currency": "usd"}, "line_item": None},
    ]
    path.write_text(json.dumps(page))
    words = ["audit", "--data-dir", str(tmp_path), "--output", "json", "--from", FIRST, "--to", plan.world.end]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main([*words, "--invoice", str(tmp_path / "0.invoice"), "--invoice", str(path)])
    result = json.loads(printed.getvalue())
    (line,) = (one for one in result["lines"] if one["model"] is None)
    assert (code, line["difference"]["usd"]) == (1, "-4.75")
    assert [(one["cause"], one["usd"]) for one in line["explanations"]] == [("web_search", "0.25"), ("credit", "-5")]
    assert line["unexplained"]["usd"] == "0"


def monthly(text: str, world: World) -> str:
    """A FOCUS export whose rows are for the whole period."""
    return re.sub(
        r"\d{4}-\d\d-\d\dT00:00:00Z,\d{4}-\d\d-\d\dT00:00:00Z", f"{world.first}T00:00:00Z,{world.end}T00:00:00Z", text
    )


def test_rows_of_several_days_are_compared_without_days(tmp_path: Path) -> None:
    export = BY_NAME["FOCUS"]
    plan = Plan(a_world(export, 12), random.Random(12))
    text = monthly(export.writers[0](of_the_period(plan, export)), plan.world)
    one = replace(export, writers=(lambda _: text,))
    code, result = audit(tmp_path, plan, one)
    assert (code, result["causes"], result["unexplained"]["tokens"]["total"]) == (0, [], 0)
    assert [(line["day"], line["model"], line["key"]) for line in result["lines"]] == [
        (None, model, tenant) for model in sorted(export.models) for tenant in sorted(TENANTS)
    ]


def test_a_row_that_reaches_beyond_the_period_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = BY_NAME["FOCUS"]
    plan = Plan(a_world(export, 12), random.Random(12))
    (tmp_path / "bill").write_text(monthly(export.writers[0](of_the_period(plan, export)), plan.world))
    write_ledger(tmp_path / "ledger.sqlite", plan.world.calls)
    words = ["audit", "--data-dir", str(tmp_path), "--invoice", str(tmp_path / "bill")]
    assert main([*words, "--from", FIRST, "--to", later(FIRST, DAYS - 1)]) == 2
    assert "row 1 is for more than a day, and reaches beyond the period" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Anthropic API", "Anthropic analytics", "FOCUS"])
def test_an_aborted_stream_that_reported_its_input_alone(name: str, tmp_path: Path) -> None:
    """Anthropic reports input at the beginning, and output at the end: a further request would have had input."""
    export, rng = BY_NAME[name], random.Random(name)
    plan = Plan(a_world(export, 13), rng)
    where = where_of(export, rng, 3)
    call = plan.world.change(plan.pick(where), usage="partial", outcome="client_abort")
    parts = (0, 0, 0, call.parts[3])
    plan.expected.append(Expected(where, "aborted_without_usage", parts, call.costs()[3], frozenset([call.id])))
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result, is_decided=True)


@pytest.mark.parametrize("name", ["OpenAI API", "Anthropic API", "Anthropic Console", "OpenRouter activity", "FOCUS"])
def test_a_provider_that_bills_by_the_end_of_streams_agrees(name: str, tmp_path: Path) -> None:
    """Each day lacks the streams that ran across its midnight, and has those of the day before."""
    export = BY_NAME[name]
    plan = Plan(a_world(export, 14), random.Random(14))
    for call in list(plan.world.calls):
        if is_across_midnight(call):
            after = later(call.day, 1)
            plan.world.change(call, billed_on=after)
            where = Where(call.day, call.model, call.tenant, call.tier)
            plan.expect(where, "late_across_midnight", [call], -1)
            plan.expect(where._replace(day=after), "late_across_midnight", [call])
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)
    assert code == 0


@pytest.mark.parametrize("name", ["OpenAI API", "Anthropic API", "OpenRouter activity"])
def test_a_missing_stream_of_midnight_is_not_late(name: str, tmp_path: Path) -> None:
    """The next day is in the invoice, and nothing of this cell is billed there."""
    export, rng = BY_NAME[name], random.Random(name)
    plan = Plan(a_world(export, 15), rng)
    where = where_of(export, rng, 3)
    after = where._replace(day=later(where.day, 1))
    plan.world.calls = [one for one in plan.world.calls if Where(one.day, one.model, one.tenant, one.tier) != after]
    call = plan.pick(where, across_midnight=True)
    plan.world.change(call, billed=False)
    plan.expect(where, "missing_from_invoice", [call], -1)
    code, result = audit(tmp_path, plan, export)
    check(export, plan, code, result)


def test_invoices_of_several_providers_are_compared_at_once(tmp_path: Path) -> None:
    names, rng = ("OpenAI API", "Anthropic Console", "OpenRouter activity"), random.Random(16)
    plans = [(BY_NAME[name], Plan(a_world(BY_NAME[name], 16 + place), rng)) for place, name in enumerate(names)]
    PLANTS["missing_from_invoice"](plans[0][1], where_of(plans[0][0], rng, 3))
    PLANTS["coverage"](plans[2][1], where_of(plans[2][0], rng, 4))
    words = ["audit", "--data-dir", str(tmp_path), "--output", "json", "--from", FIRST, "--to", later(FIRST, DAYS)]
    (tmp_path / "map.toml").write_text(MAP)
    for export, plan in plans:
        write_ledger(tmp_path / "ledger.sqlite", plan.world.calls)
        bill = plan.bill(export.each_call)
        for number, write in enumerate(export.writers):
            path = tmp_path / f"{export.name} {number}"
            path.write_text(write(bill))
            words += ["--invoice", str(path)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = main([*words, "--map", str(tmp_path / "map.toml")])
    result = json.loads(printed.getvalue())
    wanted = {key for export, plan in plans for key in folded(export, plan.expected, plan.world)}
    assert explained(result).keys() == wanted
    assert (code, {one["cause"] for one in result["causes"]}) == (1, {"missing_from_invoice", "coverage"})
    assert (
        result["coverage"]["openai"] == result["coverage"]["anthropic"] == "1.0000" > result["coverage"]["openrouter"]
    )
    check_sums(result)
