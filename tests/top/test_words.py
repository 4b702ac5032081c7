"""Short texts of durations, counts and bars."""

from streamgauge.top.words import age, bars, count, number_of, seconds, ticks, usd


def test_durations_have_the_digits_of_the_page() -> None:
    values = (None, 0.0, 0.1234, 3.5, 12.34, 59.97, 90, 119.7, 125.0, 3599, 3_900)
    assert [seconds(value) for value in values] == [
        "-", "0 s", "123 ms", "3.50 s", "12.3 s", "1 min 0 s", "1 min 30 s", "2 min 0 s", "2 min 5 s", "59 min 59 s",
        "1 h 5 min",
    ]  # fmt: skip


def test_ages_are_rounded_down_to_one_unit() -> None:
    assert [age(value) for value in (None, 0.9, 59.9, 60, 3_599, 3_600, 200_000)] == [
        "-", "0 s", "59 s", "1 min", "59 min", "1 h", "2 d",
    ]  # fmt: skip


def test_numbers() -> None:
    assert (count(None), count(12_345)) == ("-", "12,345")
    assert (number_of(1, "stream"), number_of(2, "stream")) == ("1 stream", "2 streams")
    assert (usd(1_234.5), usd(0.03), usd(0), usd(0.00003)) == ("1,234.50 USD", "0.0300 USD", "0.00 USD", "<0.0001 USD")


def test_bars_grow_and_the_smallest_value_is_seen() -> None:
    assert ticks([0] * 57 + [1, 1, 1], 3) == " " * 19 + "█"
    assert ticks([1] + [0] * 59, 30) == "▁" + " " * 19
    assert ticks(None, 1) == "-"
    assert bars([0, 5, 50], 5) == " ██"
