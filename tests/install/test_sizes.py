"""The guide says how many packages an installation has, and how large they are."""

import pytest
from scripts.installed_packages import documented, measured, project

EXTRAS = ["", *project()["optional-dependencies"]]


def test_a_tap_alone_is_small() -> None:
    packages, size = measured()
    assert packages <= 21
    assert size <= 67e6


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_guide_has_the_size_of_each_installation(extra: str) -> None:
    packages, size = measured(extra)
    said_packages, said_megabytes = documented()[extra]
    assert packages == said_packages, "run: python -m scripts.installed_packages"
    assert size / 1e6 == pytest.approx(said_megabytes, rel=0.03, abs=1), "run: python -m scripts.installed_packages"
