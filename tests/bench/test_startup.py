"""The check of `--version` runs both programs alternately; their times themselves are not tested."""

import pytest

from bench import startup


def test_both_programs_run_and_their_ratio_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert startup.main(["--turns=1"]) in (0, 1)
    times, ratio = capsys.readouterr().out.splitlines()
    assert times.startswith("streamgauge --version: ")
    assert ratio.startswith("ratio ")


@pytest.mark.parametrize(("times", "code"), [((0.15, 0.1), 0), ((0.16, 0.1), 1)])
def test_a_ratio_above_the_limit_is_a_failure(
    times: tuple[float, float], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(startup, "by_turns", lambda turns: times)
    assert startup.main([]) == code


def test_the_figure_is_the_median_of_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {startup.VERSION: iter([9.0, 1.0, 2.0, 8.0]), startup.IMPORT: iter([9.0, 4.0, 3.0, 7.0])}
    monkeypatch.setattr(startup, "seconds_of", lambda arguments: next(times[arguments]))
    assert startup.by_turns(3) == (2.0, 4.0)
