"""Which cause is named, and which difference is left undecided: cells made by hand."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import ZERO, Tokens, negated, plus, total_of, usd_total
from streamgauge.audit.cells import Cell, Folding, OurCell
from streamgauge.audit.explain import ModelSearch
from streamgauge.audit.habits import Habits, ProviderHabits
from streamgauge.audit.ours import GroupKey, OurStream
from streamgauge.audit.period import Period, day_after
from streamgauge.audit.subsets import Search
from streamgauge.audit.theirs import Shape, TheirCell

DAY = "2026-03-02"
GROUP = GroupKey(DAY, "openai", "gpt-5", None, None)
SHAPE = Shape(has_tokens=True, has_money=True, has_keys=False, has_tiers=False)
HOUR_US = 3_600 * 10**6
# Dollars for a token, by kind.
PRICES = (Decimal("0.000001"), Decimal("0.0000001"), Decimal("0.000002"), Decimal("0.00001"))
_numbers = count()


def cost(tokens: Tokens, factor: Decimal = Decimal(1)) -> Decimal:
    return sum((number * price for number, price in zip(tokens, PRICES, strict=True)), Decimal(0)) * factor


def a_stream(tokens: Tokens, group: GroupKey = GROUP, hour: int = 9, **changes: object) -> OurStream:
    """A completed stream with usage."""
    start_us = Period(group.day, day_after(group.day, 1), "UTC").since_us + hour * HOUR_US
    made = OurStream(
        id=f"{next(_numbers):08d}",
        group=group,
        start_us=start_us,
        end_us=start_us + 10**6,
        tokens=tokens,
        priced=tokens,
        usd=cost(tokens),
        reasoning=0,
        is_final=True,
        has_usage=True,
        has_token=True,
        was_sent=True,
        is_completed=True,
        response_id=None,
        digest=None,
        output_limit=None,
        chars=0,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


def without_usage(*, is_completed: bool = False, is_refused: bool = False) -> OurStream:
    return a_stream(
        ZERO, has_usage=False, is_final=False, is_completed=is_completed, is_refused=is_refused, usd=Decimal(0)
    )


def a_cell(
    streams: Sequence[OurStream],
    more: Tokens = ZERO,
    *,
    more_requests: int | None = 0,
    group: GroupKey = GROUP,
    usd: Decimal | None = None,
    has_rows: bool = True,
) -> Cell:
    """A cell whose invoice has `more` than the streams reported, at our prices. more_requests: None if none are counted."""
    reported = [stream for stream in streams if stream.has_usage]
    tokens = total_of(stream.tokens for stream in reported)
    ours = OurCell(
        tokens,
        usd_total(stream.usd for stream in reported) or Decimal(0),
        streams=len(streams),
        reported=len(reported),
        reasoning=sum(stream.reasoning for stream in reported),
    )
    billed = plus(tokens, more)
    requests = None if more_requests is None else len(reported) + more_requests
    theirs = TheirCell(billed, cost(billed) if usd is None else usd, requests=requests, token_rows=1, money_rows=1)
    if not has_rows:
        theirs = TheirCell()
    return Cell(group, SHAPE, ours, theirs, True, streams=list(streams), is_read=True)


def explained(*cells: Cell) -> dict[str, Tokens]:
    """The causes that are named, with their tokens; an undecided part by all of its causes."""
    folding = Folding({"openai": SHAPE}, [], [])

    def end_us(day: str) -> int:
        return Period(day, day_after(day, 1), "UTC").until_us

    by_model: dict[str | None, dict[GroupKey, Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.group.model, {})[cell.group] = cell
    searches = [ModelSearch(own, {}, folding, end_us, Search()) for own in by_model.values()]
    habits = [one.explain_exactly() for one in searches]
    of_provider = ProviderHabits(habits)
    for one, of_model in zip(searches, habits, strict=True):
        one.explain_rest(Habits(of_model, of_provider), Decimal(0))
    found: dict[str, Tokens] = {}
    for cell in cells:
        named = [(one.cause, one.tokens) for one in cell.explanations]
        named += [(" or ".join(one.one_of), one.tokens) for one in cell.undecided]
        for cause, tokens in named:
            found[cause] = plus(found.get(cause, ZERO), tokens)
        if cell.rest != ZERO:
            found["unexplained"] = plus(found.get("unexplained", ZERO), cell.rest)
    return found


def ten(reasoning: int = 320) -> list[OurStream]:
    return [a_stream(Tokens(500 + 7 * n, 0, 0, 400 + 3 * n), reasoning=reasoning) for n in range(10)]


ONE_TOKEN = Tokens(0, 0, 0, -1)
UNSEEN = Tokens(2_103, 0, 0, 93)


@pytest.mark.parametrize("more", [ONE_TOKEN, Tokens(0, 0, 0, 1), Tokens(1, 0, 0, 0), Tokens(-1, 0, 0, 0)])
def test_one_token_does_not_become_two_causes(more: Tokens) -> None:
    """An aborted stream's bounds hold any rest, so they are combined with no other hypothesis."""
    assert explained(a_cell([*ten(), without_usage()], more)) == {"unexplained": more}


def test_refused_streams_are_no_candidates() -> None:
    refused = [without_usage(is_refused=True) for _ in range(8)]
    cell = a_cell([*ten(), *refused], UNSEEN, more_requests=3)
    assert explained(cell) == {"coverage": UNSEEN}
    assert cell.explanations[0].streams == ()


def test_an_aborted_stream_among_refused_ones_is_named_alone() -> None:
    aborted = without_usage()
    cell = a_cell([*ten(), *[without_usage(is_refused=True) for _ in range(8)], aborted], UNSEEN, more_requests=1)
    assert explained(cell) == {"aborted_without_usage": UNSEEN}
    assert cell.explanations[0].streams == (aborted.id,)


@pytest.mark.parametrize(
    ("aborted", "unreported", "more_requests", "named"),
    [
        (2, 0, 2, "aborted_without_usage"),
        (0, 2, 2, "usage_not_reported"),
        (2, 3, 3, "usage_not_reported"),
        (2, 3, 5, "aborted_without_usage or usage_not_reported"),
        (5, 0, 3, "aborted_without_usage or coverage"),
        (2, 0, 7, "aborted_without_usage or coverage"),
        (0, 2, 4, "coverage or usage_not_reported"),
        (2, 2, 3, "aborted_without_usage or coverage or usage_not_reported"),
        (0, 0, 3, "coverage"),
        (0, 0, 0, "unexplained"),
        (2, 0, 0, "unexplained"),
        (2, 0, None, "aborted_without_usage or coverage"),
        (0, 2, None, "coverage or usage_not_reported"),
        (0, 0, None, "coverage"),
    ],
)
def test_the_count_of_requests_decides(aborted: int, unreported: int, more_requests: int | None, named: str) -> None:
    streams = [without_usage() for _ in range(aborted)] + [without_usage(is_completed=True) for _ in range(unreported)]
    assert explained(a_cell([*ten(), *streams], UNSEEN, more_requests=more_requests)) == {named: UNSEEN}


def test_input_by_reference_has_no_bound() -> None:
    more = Tokens(104_010, 0, 0, 10)
    assert explained(a_cell([*ten(), without_usage()], more, more_requests=1)) == {"aborted_without_usage": more}


def test_output_beyond_the_requests_limits_is_not_of_aborted_streams() -> None:
    limited = without_usage()._replace(output_limit=50)
    more = Tokens(300, 0, 0, 51)
    assert explained(a_cell([*ten(), limited], more, more_requests=None)) == {"coverage": more}


def test_more_output_alone_is_of_streams_that_reported_their_input() -> None:
    partial = a_stream(Tokens(900, 0, 0, 1), is_final=False, is_completed=False)
    cell = a_cell([*ten(), partial, without_usage()], Tokens(0, 0, 0, 77), more_requests=None)
    assert explained(cell) == {"aborted_without_usage": Tokens(0, 0, 0, 77)}
    assert cell.explanations[0].streams == (partial.id,)


def test_reasoning_counted_twice_is_named() -> None:
    more = Tokens(0, 0, 0, 3_200)
    assert explained(a_cell(ten(), more)) == {"reasoning_counted_differently": more}


def test_two_hypotheses_that_predict_the_same_are_undecided() -> None:
    """All input is cached, and as many tokens are reasoning as one retry had: one difference, two causes."""
    first = a_stream(
        ZERO, has_usage=False, is_final=False, has_token=False, is_completed=False, digest="d", was_sent=False
    )
    streams = [a_stream(Tokens(0, 0, 0, 640), digest="d", reasoning=640), first]
    more = Tokens(0, 0, 0, 640)
    found = explained(a_cell(streams, more, more_requests=None))
    assert found == {"reasoning_counted_differently or retries_billed_twice": more}


def counted_twice(*days: int, unseen_on: int) -> list[Cell]:
    """Cells of days in which reasoning is counted twice; on one of them there is also an unseen request."""
    cells = []
    for number in days:
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [stream._replace(group=group) for stream in ten()]
        more = Tokens(0, 0, 0, 3_200)
        is_unseen = number == unseen_on
        cells.append(
            a_cell(streams, plus(more, UNSEEN) if is_unseen else more, group=group, more_requests=3 if is_unseen else 0)
        )
    return cells


def test_a_way_to_count_of_the_model_is_found_beside_unseen_requests() -> None:
    """In cells before and after it reasoning is counted twice, exactly; in this one that holds, too, beside other traffic."""
    assert explained(*counted_twice(0, 1, 2, unseen_on=1)) == {
        "reasoning_counted_differently": Tokens(0, 0, 0, 9_600),
        "coverage": UNSEEN,
    }


def test_a_way_to_count_may_have_ended_before_a_day() -> None:
    found = explained(*counted_twice(0, 1, unseen_on=1))
    assert found == {
        "reasoning_counted_differently": Tokens(0, 0, 0, 3_200),
        "coverage or reasoning_counted_differently": plus(UNSEEN, Tokens(0, 0, 0, 3_200)),
    }


def test_a_way_to_count_that_another_cell_of_the_day_excludes_does_not_hold() -> None:
    group = GROUP._replace(day=day_after(DAY, 1), tier="flex")
    other = a_cell([stream._replace(group=group) for stream in ten()], group=group)
    found = explained(*counted_twice(0, 1, 2, unseen_on=1), other)
    assert found == {
        "reasoning_counted_differently": Tokens(0, 0, 0, 6_400),
        "coverage": plus(UNSEEN, Tokens(0, 0, 0, 3_200)),
    }


def test_kinds_of_input_that_are_exchanged_are_not_combined_with_bounds() -> None:
    streams = [a_stream(Tokens(500, 300 + n, 0, 90)) for n in range(8)]
    unreported = [without_usage(is_completed=True) for _ in range(5)]
    more = Tokens(10_401, -100, 0, 10)
    assert explained(a_cell([*streams, *unreported], more, more_requests=5)) == {"unexplained": more}


def keyed(key: str, streams: Sequence[OurStream], more: Tokens = ZERO, *, has_rows: bool = True) -> Cell:
    group = GROUP._replace(key=key)
    cell = a_cell([stream._replace(group=group) for stream in streams], more, group=group, has_rows=has_rows)
    cell.shape = replace(SHAPE, has_keys=True)
    return cell


def test_the_traffic_of_a_key_that_is_billed_for_another_one_is_not_missing() -> None:
    moved = ten()
    whole = total_of(stream.tokens for stream in moved)
    found = explained(keyed("a", moved, has_rows=False), keyed("b", [], whole))
    assert found == {"other_key": ZERO}


def test_charges_beside_tokens_keep_their_names() -> None:
    cell = a_cell(ten())
    cell.theirs.charges = {("web_search", "web search tool calls"): Decimal("0.05")}
    cell.theirs.usd += Decimal("0.05")
    assert explained(cell) == {"web_search": ZERO}
    assert (cell.explanations[0].usd, cell.explanations[0].labels) == (Decimal("0.05"), ("web search tool calls",))
    assert cell.usd_rest == 0


def test_the_batch_api_has_the_money_that_is_left() -> None:
    batch = Tokens(3_015, 0, 0, 375)
    cell = a_cell(ten(), batch, more_requests=6)
    cell.theirs.usd -= cost(batch) / 2
    cell.theirs.batch.tokens, cell.theirs.batch.requests = batch, 6
    assert explained(cell) == {"batch": batch}
    assert cell.explanations[0].usd == cost(batch) / 2
    assert cell.usd_rest == 0


def priced_days(days: int, changed_from_us: int, factor: Decimal) -> list[Cell]:
    """Cells of days with six streams each; what begins later costs more output."""
    cells = []
    for number in range(days):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [
            a_stream(Tokens(100 * hour, 0, 0, 50 + hour * (number + 1)), group, hour) for hour in (1, 5, 9, 13, 17, 21)
        ]
        added = sum(
            (PRICES[3] * stream.tokens.output * factor for stream in streams if stream.start_us >= changed_from_us),
            Decimal(0),
        )
        cells.append(a_cell(streams, group=group, usd=cost(total_of(s.tokens for s in streams)) + added))
    return cells


@pytest.mark.parametrize("hour", [0, 7, 12, 20])
def test_a_price_may_change_at_any_hour_of_a_day(hour: int) -> None:
    noon = Period("2026-03-03", "2026-03-04", "UTC").since_us + hour * HOUR_US
    cells = priced_days(5, noon, Decimal("0.2"))
    assert explained(*cells) == {"price_changed": ZERO}
    rates = {rate for cell in cells for one in cell.explanations for rate in one.rates}
    assert {(rate.kind, str(rate.old), str(rate.new), rate.first_seen) for rate in rates} == {
        ("output", "10.000000", "12.000000", "2026-03-03")
    }
    assert all(cell.usd_rest == 0 for cell in cells)


def test_two_prices_that_explain_a_change_alike_are_not_told() -> None:
    """Each day has the same tokens, so a factor for all prices and a price of output explain them alike."""
    cells = []
    for number in range(3):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [stream._replace(group=group) for stream in ten()]
        cells.append(a_cell(streams, group=group, usd=cost(total_of(stream.tokens for stream in streams)) * 2))
    assert explained(*cells) == {"price_changed": ZERO}
    assert [one.rates for cell in cells for one in cell.explanations] == [(), (), ()]


def test_a_first_day_that_no_moment_explains_has_no_cause() -> None:
    cells = priced_days(5, Period("2026-03-03", "2026-03-04", "UTC").since_us, Decimal("0.2"))
    cells[1].theirs.usd -= Decimal("0.00000137")
    explained(*cells)
    assert [[one.cause for one in cell.explanations] for cell in cells] == [[], []] + [["price_changed"]] * 3


def days(*cells: Sequence[OurStream], more: Tokens, requests: int | None, day: int) -> list[Cell]:
    """Cells of days in a row, of which one has more."""
    made = []
    for number, streams in enumerate(cells):
        group = GROUP._replace(day=day_after(DAY, number))
        own = [stream._replace(group=group) for stream in streams]
        made.append(
            a_cell(
                own,
                more if number == day else ZERO,
                more_requests=requests if number == day or requests is None else 0,
                group=group,
            )
        )
    return made


def with_aborted(count: int) -> list[OurStream]:
    return [*ten(), *[without_usage() for _ in range(count)]]


@pytest.mark.parametrize("requests", [None, 2])
def test_aborted_streams_that_other_days_do_not_bill_are_not_billed(requests: int | None) -> None:
    """Two requests that no tap saw, in a cell with two aborted streams; such streams cost nothing before and after it."""
    cells = days(with_aborted(3), with_aborted(2), with_aborted(3), more=UNSEEN, requests=requests, day=1)
    assert explained(*cells) == {"coverage": UNSEEN}


def test_a_day_that_is_not_billed_at_all_does_not_show_that_aborted_streams_are_not_billed() -> None:
    missing, having = days(with_aborted(5), with_aborted(2), more=UNSEEN, requests=2, day=1)
    having.group = GROUP._replace(tier="flex")
    missing.theirs = TheirCell()
    found = explained(missing, having)
    assert found == {"missing_from_invoice": negated(missing.ours.tokens), "aborted_without_usage": UNSEEN}


@pytest.mark.parametrize("day", [0, 2])
def test_days_on_one_side_do_not_show_what_is_not_billed(day: int) -> None:
    cells = days(with_aborted(3), with_aborted(3), with_aborted(3), more=UNSEEN, requests=None, day=day)
    assert explained(*cells) == {"aborted_without_usage or coverage": UNSEEN}


def test_aborted_streams_that_are_counted_and_not_billed_are_no_requests_of_others() -> None:
    cells = days(with_aborted(3), with_aborted(2), with_aborted(3), more=UNSEEN, requests=3, day=1)
    for cell in (cells[0], cells[2]):
        cell.theirs.requests = 10 + 3
    assert explained(*cells) == {"coverage": UNSEEN}


def test_more_output_than_what_was_seen_is_billed_of_aborted_streams() -> None:
    """One token more cannot be a stream that wrote 400 characters."""
    partial = a_stream(Tokens(900, 0, 0, 1), is_final=False, is_completed=False, chars=400)
    assert explained(a_cell([*ten(), partial], Tokens(0, 0, 0, 1))) == {"unexplained": Tokens(0, 0, 0, 1)}
    assert explained(a_cell([*ten(), partial], Tokens(0, 0, 0, 30))) == {"unexplained": Tokens(0, 0, 0, 30)}
    assert explained(a_cell([*ten(), partial], Tokens(0, 0, 0, 90))) == {"aborted_without_usage": Tokens(0, 0, 0, 90)}


def test_repeated_rows_beside_an_aborted_stream_are_undecided() -> None:
    cell = a_cell([*ten(), without_usage()], plus(UNSEEN, Tokens(700, 0, 0, 30)), more_requests=2)
    cell.theirs.repeated.rows, cell.theirs.repeated.requests = 2, 1
    cell.theirs.repeated.tokens = Tokens(700, 0, 0, 30)
    assert list(explained(cell)) == ["aborted_without_usage or coverage or duplicate_lines"]


def test_a_way_to_count_may_be_a_part_of_what_aborted_streams_are_billed() -> None:
    """It concerns a model: a single cell does not show it."""
    more = plus(Tokens(0, 0, 0, 3_200), UNSEEN)
    cells = []
    for number in range(2):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [stream._replace(group=group) for stream in [*ten(), without_usage()]]
        cells.append(a_cell(streams, more, group=group, more_requests=1))
    assert explained(cells[0]) == {"aborted_without_usage": more}
    cells[0].explanations.clear()
    assert explained(*cells) == {"aborted_without_usage or reasoning_counted_differently": plus(more, more)}


def test_tokens_of_another_key_among_others_are_not_missing() -> None:
    """All of key a are billed for key b, which also has an unseen request: neither side has the exact tokens of the other."""
    moved = ten()
    whole = total_of(stream.tokens for stream in moved)
    target = keyed("b", [], plus(whole, UNSEEN))
    target.theirs.requests = len(moved) + 1
    found = explained(keyed("a", moved, has_rows=False), target)
    assert found == {"missing_from_invoice or other_key": negated(whole), "coverage or other_key": plus(whole, UNSEEN)}


def test_a_key_that_lacks_nothing_gives_no_streams() -> None:
    """What key b has more is as much as a stream of key a, which itself has more, not less."""
    streams = ten()
    source, target = keyed("a", streams, UNSEEN), keyed("b", ten(), streams[3].tokens)
    source.theirs.requests, target.theirs.requests = 13, 11
    assert explained(source, target) == {"coverage": plus(UNSEEN, streams[3].tokens)}


def test_a_lack_beside_a_day_that_has_more_may_be_another_time_zone() -> None:
    """No streams add up to either: without the other day the one would be missing, the other unseen."""
    lack = Tokens(-1_111, 0, 0, -97)
    lacking, having = days(ten(), ten(), more=ZERO, requests=0, day=0)
    lacking.theirs.tokens, lacking.theirs.requests = plus(lacking.theirs.tokens, lack), 8
    having.theirs.tokens, having.theirs.requests = plus(having.theirs.tokens, UNSEEN), 13
    assert explained(lacking, having) == {
        "missing_from_invoice or time_zone_shift": lack,
        "coverage or time_zone_shift": UNSEEN,
    }


def test_our_streams_that_are_billed_as_batch_are_in_another_tier() -> None:
    streams = ten()
    whole = total_of(stream.tokens for stream in streams)
    group = GROUP._replace(tier="standard")
    standard = a_cell([stream._replace(group=group) for stream in streams], group=group, has_rows=False)
    batch = a_cell([], whole, group=GROUP._replace(tier="batch"), more_requests=10)
    batch.theirs.batch.tokens = whole
    assert explained(standard, batch) == {"tier": ZERO}


@pytest.mark.parametrize(("their_tier", "named"), [("priority", "tier"), ("standard", "price_changed")])
def test_money_of_a_tier_that_no_stream_has_is_of_that_tier(their_tier: str, named: str) -> None:
    """Tiers are not compared, since the costs do not always name them; but here they do."""
    cells = []
    for number in range(3):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [stream._replace(group=group) for stream in ten()]
        cell = a_cell(streams, group=group, usd=cost(total_of(stream.tokens for stream in streams)) * 2)
        cell.our_tiers, cell.their_tiers = frozenset({"standard"}), frozenset({their_tier})
        cells.append(cell)
    assert explained(*cells) == {named: ZERO}
    assert all(cell.usd_rest == 0 for cell in cells)


def test_two_of_three_failed_attempts_are_billed() -> None:
    attempts = [
        a_stream(
            ZERO, has_usage=False, is_final=False, has_token=False, is_completed=False, digest=f"{n}", was_sent=False
        )
        for n in range(3)
    ]
    again = [a_stream(Tokens(511 + 100 * n, 0, 0, 77 + 9 * n), digest=f"{n}") for n in range(3)]
    more = plus(again[0].tokens, again[2].tokens)
    cell = a_cell([*ten(), *attempts, *again], more, more_requests=2)
    assert explained(cell) == {"retries_billed_twice": more}
    assert cell.explanations[0].streams == (attempts[0].id, attempts[2].id)


def test_a_price_of_a_cheap_model_may_change_at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mean price has more decimal places than are shown."""
    monkeypatch.setattr(sys.modules[__name__], "PRICES", tuple(price / 1_000 for price in PRICES))
    cells = []
    for number in range(4):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [
            a_stream(Tokens(100 * hour + 7 * number, 0, 0, 50 + hour * hour), group, hour) for hour in (1, 5, 9, 13, 17)
        ]
        noon = Period("2026-03-03", "2026-03-04", "UTC").since_us + 12 * HOUR_US
        later = total_of(stream.tokens for stream in streams if stream.start_us >= noon)
        usd = cost(total_of(stream.tokens for stream in streams)) + cost(later) / 5
        cells.append(a_cell(streams, group=group, usd=usd))
    assert explained(*cells) == {"price_changed": ZERO}
    assert all(cell.usd_rest == 0 for cell in cells)


def test_a_price_may_change_at_noon_where_the_invoice_rounds_to_more_than_a_stream_costs() -> None:
    """Each key's amounts leave several moments; one of them is common to both keys."""
    noon = Period("2026-03-03", "2026-03-04", "UTC").since_us + 12 * HOUR_US
    cells = []
    for key, offset_us in (("agents", 0), ("support", 7 * 60 * 1_000_000)):
        for number in range(3):
            group = GROUP._replace(day=day_after(DAY, number), key=key)
            streams = [
                stream._replace(start_us=stream.start_us + offset_us)
                for hour in range(24)
                for stream in [a_stream(Tokens(100 * hour, 0, 0, 50 + hour), group, hour)]
            ]
            later = total_of(stream.tokens for stream in streams if stream.start_us >= noon)
            usd = cost(total_of(stream.tokens for stream in streams)) + (cost(later) / 4 if number else 0)
            cells.append(a_cell(streams, group=group, usd=usd))
            cells[-1].theirs.slack = cost(streams[12].tokens)
            if number == 1:  # of one key it is rounded up, of the other one down
                cells[-1].theirs.usd += cells[-1].theirs.slack * (1 if key == "agents" else -1) * Decimal("0.9")
    assert explained(*cells) == {"price_changed": ZERO}
    assert [len(cell.explanations) for cell in cells] == [0, 1, 1] * 2


def test_a_price_may_change_at_noon_where_no_single_price_of_a_kind_is_known() -> None:
    """Cache writes for an hour cost more than those for five minutes, and the invoice has one amount for both."""
    noon = Period("2026-03-03", "2026-03-04", "UTC").since_us + 12 * HOUR_US
    cells = []
    for number in range(3):
        group = GROUP._replace(day=day_after(DAY, number))
        streams, usd, written = [], Decimal(0), Decimal(0)
        for hour in (1, 5, 9, 13, 17, 21):
            tokens = Tokens(100 * hour, 10, 400 + hour, 50 + hour)
            own = cost(tokens) + (PRICES[2] * tokens[2] if hour in (5, 17) else 0)
            streams.append(a_stream(tokens, group, hour, usd=own))
            factor = Decimal("1.25") if streams[-1].start_us >= noon else Decimal(1)
            usd += own * factor
            written += (own - cost(Tokens(tokens[0], tokens[1], 0, tokens[3]))) * factor
        cells.append(a_cell(streams, group=group, usd=usd))
        cells[-1].theirs.usd_by_kind = {"input_cache_write": written}
    assert explained(*cells) == {"price_changed": ZERO}
    assert [len(cell.explanations) for cell in cells] == [0, 1, 1]


def of_model(model: str, cells: Sequence[Cell]) -> list[Cell]:
    """The same cells of another model."""
    for cell in cells:
        cell.group = cell.group._replace(model=model)
        cell.streams = [stream._replace(group=cell.group) for stream in cell.streams]
    return list(cells)


def unbilled_days(model: str) -> list[Cell]:
    """Cells of three days that agree, each with three aborted streams."""
    return of_model(model, days(with_aborted(3), with_aborted(3), with_aborted(3), more=ZERO, requests=None, day=0))


@pytest.mark.parametrize(("requests", "named"), [(3, "coverage"), (2, "aborted_without_usage")])
def test_more_requests_than_streams_show_unseen_ones_where_other_models_bill_no_aborted_streams(
    requests: int, named: str
) -> None:
    """Its first day shows nothing of this model; with as many requests as streams these are billed for this model alone."""
    cells = days(with_aborted(2), ten(), ten(), more=UNSEEN, requests=requests, day=0)
    assert explained(*cells, *unbilled_days("gpt-4o")) == {named: UNSEEN}


def test_another_cell_that_may_be_of_billed_aborted_streams_leaves_it_undecided() -> None:
    cells = days(with_aborted(2), ten(), ten(), more=UNSEEN, requests=3, day=0)
    billed = days(ten(), with_aborted(2), ten(), more=UNSEEN, requests=2, day=1)[1:2]
    billed[0].group = billed[0].group._replace(tier="flex")
    assert explained(*cells, *billed, *unbilled_days("gpt-4o")) == {
        "aborted_without_usage or coverage": UNSEEN,
        "aborted_without_usage": UNSEEN,
    }


def sized(streams: Sequence[OurStream], off: int = 0) -> list[OurStream]:
    """The streams with bodies of four bytes a token, and `off` more for every second one."""
    return [
        stream._replace(body_bytes=300 + 4 * stream.tokens.input + off * (place % 2))
        for place, stream in enumerate(streams)
    ]


def unlike() -> list[OurStream]:
    """Twenty streams with bodies of four bytes a token, of which no two have the same input."""
    return sized([a_stream(Tokens(500 + 37 * n, 0, 0, 400 + 3 * n)) for n in range(20)])


def left(*inputs: int) -> list[OurStream]:
    """Aborted streams whose requests had so much input."""
    return [without_usage()._replace(body_bytes=300 + 4 * count) for count in inputs]


BILLED = Tokens(1_900, 0, 0, 180)


def test_input_that_the_sizes_of_aborted_requests_predict_is_theirs() -> None:
    """The invoice counts no requests: nothing else tells these from requests that no tap saw."""
    cell = a_cell([*unlike(), *left(700, 1_200)], BILLED, more_requests=None)
    assert explained(cell) == {"aborted_without_usage": BILLED}
    assert len(cell.explanations[0].streams) == 2


@pytest.mark.parametrize(
    ("streams", "why"),
    [
        ([*unlike(), *left(700, 1_201)], "one token more"),
        ([*sized(unlike(), off=4_000), *left(700, 1_200)], "sizes that predict little"),
        ([*unlike()[:10], *left(700, 1_200)], "ten streams only"),
        ([*unlike(), *left(700, 1_200), without_usage()], "a stream whose size is not known"),
        ([*sized([*ten(), *ten()]), *left(700, 1_200)], "each request twice: an unseen one may be like an aborted one"),
    ],
)
def test_sizes_that_do_not_predict_the_input_decide_nothing(streams: list[OurStream], why: str) -> None:
    assert explained(a_cell(streams, BILLED, more_requests=None)) == {"aborted_without_usage or coverage": BILLED}, why


@pytest.mark.parametrize("model", [GROUP.model, "gpt-4o"])
def test_sizes_decide_nothing_where_another_cell_has_requests_that_no_tap_saw(model: str) -> None:
    """The request of an aborted stream may have been sent again past the taps."""
    cell = a_cell([*unlike(), *left(700, 1_200)], BILLED, more_requests=None)
    group = GROUP._replace(day=day_after(DAY, 3))
    unseen = a_cell([one._replace(group=group) for one in ten()], UNSEEN, group=group, more_requests=None)
    assert explained(cell, *of_model(model, [unseen])) == {
        "aborted_without_usage or coverage": BILLED,
        "coverage": UNSEEN,
    }


def test_one_cell_of_many_may_have_by_chance_what_sizes_predict() -> None:
    """Of 30 cells with unseen requests one has as much input as its aborted stream."""
    cells = []
    for number in range(30):
        group = GROUP._replace(day=day_after(DAY, number))
        streams = [stream._replace(group=group) for stream in [*unlike(), *left(300)]]
        cells.append(a_cell(streams, Tokens(300 + 7 * number, 0, 0, 90), group=group, more_requests=None))
    assert list(explained(*cells)) == ["aborted_without_usage or coverage"]


def test_unseen_requests_are_certain_where_no_aborted_request_has_as_much_input() -> None:
    """Other models show that aborted streams are not billed, also on the first day."""
    cells = [a_cell([*sized([*ten(), *ten()]), *left(700, 1_200)], UNSEEN, more_requests=None)]
    assert explained(*cells, *unbilled_days("gpt-4o")) == {"coverage": UNSEEN}


amounts = st.builds(Tokens, *[st.integers(-5_000, 5_000)] * 4)
some_streams = st.lists(
    st.one_of(
        st.builds(a_stream, st.builds(Tokens, *[st.integers(0, 3_000)] * 4)),
        st.builds(without_usage, is_completed=st.booleans(), is_refused=st.booleans()),
    ),
    max_size=12,
)


@given(some_streams, amounts, st.one_of(st.none(), st.integers(-3, 8)))
def test_a_bound_is_never_combined_and_no_refused_stream_is_named(
    streams: list[OurStream], more: Tokens, requests: int | None
) -> None:
    cell = a_cell(streams, more, more_requests=requests)
    explained(cell)
    named = {stream for part in cell.parts for stream in part.streams}
    assert not named & {stream.id for stream in streams if stream.is_refused}
    bounded = [
        one for one in cell.explanations if one.cause in ("aborted_without_usage", "usage_not_reported", "coverage")
    ]
    assert not bounded or len(cell.parts) == 1
