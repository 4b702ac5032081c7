"""Rows for single requests, in the temporary database: the same as a dictionary of them says."""

from collections.abc import Iterable
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.request_rows import Billed, RequestRows, total_billed
from streamgauge.audit.tables import Tables, id_bytes

GROUPS = [GroupKey(day, "openrouter", "m", None, None) for day in ("2026-03-01", "2026-03-02")]
NUMBERS = {group: number + 10 for number, group in enumerate(GROUPS)}
IDS = ["a", "b", "é", "\ud800", "", "gen-1", "gen-10", "gen-2"]
counts = st.integers(0, 3)
billed = st.builds(
    lambda tokens, usd: Billed(Tokens(*tokens), usd, 1),
    st.tuples(counts, counts, counts, counts),
    st.none() | st.decimals(-5, 5, places=20),
)
rows = st.tuples(st.sampled_from(IDS), st.binary(min_size=16, max_size=16), st.sampled_from(GROUPS), billed)
Row = tuple[str, bytes, GroupKey, Billed]


def folded(tokens: Tokens) -> Tokens:
    """Kinds that are compared: input is one."""
    return Tokens(tokens.input, 0, 0, tokens.output)


def stored(given_rows: Iterable[Row], ours: Iterable[str]) -> RequestRows:
    tables = Tables()
    tables.insert("groups", ((number, group.provider, NUMBERS[group]) for number, group in enumerate(GROUPS)))
    tables.insert("groups", [(99, "another", 99)])
    lines: list[tuple[object, ...]] = [
        (0, GROUPS.index(group), digest, None, *one.tokens, None if one.usd is None else str(one.usd), None, None, 1,
         id_bytes(name), None, None, 1)
        for name, digest, group, one in given_rows
    ]  # fmt: skip
    lines.append((0, 99, b"x", None, 1, 0, 0, 1, None, None, None, 1, b"another's", None, None, 1))
    lines.append((0, 0, b"y", None, None, None, None, None, "1", None, None, 1, b"money", None, None, 1))
    tables.insert("lines", lines)
    return RequestRows(tables, "openrouter", NUMBERS, folded, [(id_bytes(name),) for name in ours])


@given(st.lists(rows, max_size=30), st.sets(st.sampled_from(IDS)))
def test_it_says_what_a_dictionary_of_the_rows_says(given_rows: list[Row], ours: set[str]) -> None:
    table = stored(given_rows, sorted(ours))
    known: dict[str, tuple[bytes, GroupKey, Billed]] = {}
    for name, digest, group, one in given_rows:
        if name not in known or digest < known[name][0]:
            known[name] = (digest, group, one._replace(tokens=folded(one.tokens)))
        elif digest == known[name][0]:  # two rows with one digest are equal in every field
            return
    for name in [*IDS, "another's", "money"]:
        assert table.is_billed(name) == (name in known)
        for group in GROUPS:
            is_there = name in known and known[name][1] == group
            assert table.billed_in(group, name) == (known[name][2] if is_there else None)
    for group in GROUPS:
        unseen = [known[name][2] for name in sorted(known.keys() - ours, key=id_bytes) if known[name][1] == group]
        assert table.unseen_total(group) == total_billed(unseen)
        for count in range(10):
            alike = [one for one in unseen if one.tokens.input == count]
            assert [table.unseen(group, count, most) for most in (1, 99)] == [alike[:1], alike]


def test_more_rows_than_one_batch() -> None:
    lines = [
        (f"r{number}", number.to_bytes(4, "big"), GROUPS[0], Billed(Tokens(output=number), Decimal("0.1"), 1))
        for number in range(2_500)
    ]
    table = stored(lines, [f"r{number}" for number in range(2_000)])
    assert table.unseen_total(GROUPS[0]) == Billed(Tokens(output=sum(range(2_000, 2_500))), Decimal("50.0"), 500)
