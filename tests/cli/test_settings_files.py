"""A collector that starts again uses the earlier content of a file of the settings that has become unusable, or none."""

from pathlib import Path

import pytest

from streamgauge.cli import settings_files
from streamgauge.cli.settings_files import FILES, SettingsFiles, kept_contents
from streamgauge.errors import UsageFault
from streamgauge.prices.price_file import NO_PRICES
from streamgauge.settings.declarations import Settings
from streamgauge.settings.sources import load

CONTENTS = {
    "prices": '[upstreams]\nvllm = "none"\n',
    "budgets": '[[budget]]\ntenant = "search"\nmonth_usd = 5\n',
    "tenants": '0123456789abcdef = "search"\n',
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name, content in CONTENTS.items():
        (tmp_path / f"{name}.toml").write_text(content)
    return load({"data_dir": str(tmp_path), **{name: str(tmp_path / f"{name}.toml") for name in FILES}})


def read(files: SettingsFiles) -> dict[str, object]:
    return {"prices": files.prices(), "budgets": files.budgets(), "tenants": files.tenants()}


def unusable(files: SettingsFiles) -> dict[str, float]:
    return {str(sample.labels["setting"]): sample.value for sample in files.samples()}


@pytest.mark.parametrize("broken", ["not = [toml", None], ids=["damaged", "removed"])
@pytest.mark.parametrize("name", FILES)
def test_an_unusable_file_is_refused_at_a_start_and_replaced_after_a_restart(
    settings: Settings, name: str, broken: str | None
) -> None:
    kept, usable = kept_contents(settings), read(SettingsFiles(settings))
    path = getattr(settings, name)
    path.unlink() if broken is None else path.write_text(broken)
    with pytest.raises(UsageFault):
        read(SettingsFiles(settings))
    said: list[str] = []
    files = SettingsFiles(settings, kept, said.append)
    assert read(files) == read(files) == usable
    assert unusable(files) == {other: float(other == name) for other in FILES}
    (sentence,) = said
    assert str(path) in sentence
    assert "its content at the start of the tap is used" in sentence
    assert files.notes() == [f"--{name}: the file cannot be used; its content at the start of the tap is used"]


def test_a_file_without_an_earlier_content_is_left_out(settings: Settings) -> None:
    for name in FILES:
        getattr(settings, name).write_text("not = [toml")
    said: list[str] = []
    for kept in ({}, {"prices": b"not = [toml"}):
        files = SettingsFiles(settings, kept, said.append)
        assert read(files) == {"prices": NO_PRICES, "budgets": None, "tenants": {}}
        assert set(unusable(files).values()) == {1.0}
    assert "there are no prices" in said[0]


def test_usable_files_are_read_again_after_a_restart(settings: Settings) -> None:
    kept = kept_contents(settings)
    assert settings.tenants is not None
    settings.tenants.write_text('0123456789abcdef = "chat"\n')
    files = SettingsFiles(settings, kept)
    assert files.tenants() == {"0123456789abcdef": "chat"}
    assert (files.notes(), unusable(files)) == ([], dict.fromkeys(FILES, 0.0))


def test_contents_are_kept_up_to_a_limit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_files, "MAX_KEPT_BYTES", len(CONTENTS["tenants"]))
    assert set(kept_contents(settings)) == {name for name in FILES if len(CONTENTS[name]) <= len(CONTENTS["tenants"])}
