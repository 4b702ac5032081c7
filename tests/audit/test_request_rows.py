"""Rows for single requests, in a temporary table: the same as a dictionary of them says."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.amounts import Tokens
from streamgauge.audit.ours import GroupKey
from streamgauge.audit.repeated import DigestCounts
from streamgauge.audit.request_rows import Billed, RequestRows, total_billed
from streamgauge.audit.temporary import temporary_file_errors, temporary_table
from streamgauge.errors import Unavailable

GROUPS = [GroupKey(day, "openrouter", "m", None, None) for day in ("2026-03-01", "2026-03-02")]
IDS = ["a", "b", "é", "\ud800", "", "gen-1", "gen-10", "gen-2"]
counts = st.integers(0, 3)
billed = st.builds(
    lambda tokens, usd: Billed(Tokens(*tokens), usd, 1),
    st.tuples(counts, counts, counts, counts),
    st.none() | st.decimals(-5, 5, places=20),
)
rows = st.tuples(st.sampled_from(IDS), st.binary(min_size=16, max_size=16), st.sampled_from(GROUPS), billed)


@given(st.lists(rows, max_size=30), st.sets(st.sampled_from(IDS)))
def test_it_says_what_a_dictionary_of_the_rows_says(
    given_rows: list[tuple[str, bytes, GroupKey, Billed]], ours: set[str]
) -> None:
    table = RequestRows()
    known: dict[str, tuple[bytes, GroupKey, Billed]] = {}
    for name, digest, group, one in given_rows:
        table.add(name, digest, group, one)
        if name not in known or digest < known[name][0]:
            known[name] = (digest, group, one)
    table.begin(ours)
    for name in IDS:
        assert table.is_billed(name) == (name in known)
        for group in GROUPS:
            is_there = name in known and known[name][1] == group
            assert table.billed_in(group, name) == (known[name][2] if is_there else None)
    for group in GROUPS:
        unseen = [known[name][2] for name in sorted(known.keys() - ours) if known[name][1] == group]
        assert table.unseen_total(group) == total_billed(unseen)
        for count in range(10):
            alike = [one for one in unseen if one.tokens.input == count]
            assert [table.unseen(group, count, most) for most in (1, 99)] == [alike[:1], alike]


def test_more_rows_than_one_batch() -> None:
    table = RequestRows()
    for number in range(2_500):
        table.add(f"r{number}", b"", GROUPS[0], Billed(Tokens(output=number), Decimal("0.1"), 1))
    table.begin([f"r{number}" for number in range(2_000)])
    assert table.unseen_total(GROUPS[0]) == Billed(Tokens(output=sum(range(2_000, 2_500))), Decimal("50.0"), 500)


@given(st.sets(st.binary(min_size=16, max_size=16), max_size=5), st.lists(st.integers(0, 5), max_size=30))
def test_digests_are_counted_that_were_added(added: set[bytes], looked_at: list[int]) -> None:
    table, digests = DigestCounts(), [*sorted(added), b"another"]
    for digest in added:
        table.add(digest)
        table.add(digest)
    assert bool(table) == bool(added)
    seen = dict.fromkeys(added, 0)
    for group in looked_at:
        digest = digests[group % len(digests)]
        assert table.before(digest) == seen.get(digest, 0)
        if digest in seen:
            seen[digest] += 1


def test_a_file_that_cannot_be_written_is_a_sentence() -> None:
    table = temporary_table("CREATE TABLE some (text TEXT)")
    table.execute("PRAGMA max_page_count = 10")
    with pytest.raises(Unavailable, match="TMPDIR"), temporary_file_errors():
        for _ in range(100):
            table.execute("INSERT INTO some VALUES (?)", ("x" * 4_096,))
