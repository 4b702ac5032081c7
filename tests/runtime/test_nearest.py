"""A wrong name gets the name that is most like it, or none."""

import pytest

from streamgauge.runtime.nearest import nearest


@pytest.mark.parametrize(
    ("given", "says"),
    [("masked", "masked"), ("MASK", "masked"), (" ful", "full"), ("zzz", None), ("", None), (3, None)],
)
def test_the_nearest_name(given: object, says: str | None) -> None:
    assert nearest(given, ("masked", "full")) == ("" if says is None else f"; did you mean {says}?")


def test_names_must_be_alike_enough() -> None:
    assert nearest("colour", ["column"], 0.8) == ""
    assert nearest("colum", ["Column"], 0.8) == "; did you mean Column?"
