"""The temporary database adds up exactly, and says what to do when its file cannot be written."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.audit.tables import Tables, id_bytes, joined, temporary_file_errors, whole_sum
from streamgauge.errors import Unavailable


@given(st.lists(st.none() | st.integers(-(2**62), 2**62), max_size=20))
def test_sums_of_whole_numbers_are_exact_beyond_63_bits(numbers: list[int | None]) -> None:
    tables = Tables()
    tables.insert("groups", ((place, "p", number) for place, number in enumerate(numbers)))
    (high, low) = tables.database.execute(f"SELECT {whole_sum('cell')} FROM groups").fetchone()
    assert joined(high, low) == sum(number for number in numbers if number is not None)


@given(st.lists(st.none() | st.decimals(-(10**18), 10**18, places=24), max_size=20))
def test_sums_of_decimals_are_exact(amounts: list[Decimal | None]) -> None:
    tables = Tables()
    tables.insert("groups", ((n, "p" if one is None else str(one), None) for n, one in enumerate(amounts)))
    (total,) = tables.database.execute("SELECT exact_sum(nullif(provider, 'p')) FROM groups").fetchone()
    known = [Fraction(amount) for amount in amounts if amount is not None]
    assert (None if total is None else Fraction(total)) == (sum(known) if known else None)


def test_no_rows_have_no_money_and_no_tokens() -> None:
    row = Tables().database.execute(f"SELECT exact_sum(provider), {whole_sum('cell')} FROM groups").fetchone()
    assert (row[0], joined(*row[1:])) == (None, 0)


def test_more_rows_than_one_batch_are_inserted() -> None:
    tables = Tables()
    tables.insert("groups", ((number, "p", None) for number in range(2_500)))
    assert tables.database.execute("SELECT count(*), max(grp) FROM groups").fetchone() == (2_500, 2_499)


def test_an_id_may_be_no_well_formed_text() -> None:
    assert len({id_bytes(text) for text in ("a", "é", "\ud800", "")}) == 4


def test_a_file_that_cannot_be_written_is_a_sentence() -> None:
    tables = Tables()
    tables.database.execute("PRAGMA max_page_count = 10")
    with pytest.raises(Unavailable, match="TMPDIR"), temporary_file_errors():
        tables.insert("groups", ((number, "x" * 4_096, None) for number in range(100)))
