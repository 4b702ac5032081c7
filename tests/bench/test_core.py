"""The benchmark runs and measures what it claims; the speed itself is not tested."""

from pathlib import Path

import msgspec
import pytest
from bench.core import MEMORY_LIMIT, SHAPES, STATE_LIMIT, Sizes, main, memory_bytes, rows, state_bytes
from bench.floors import FLOORS
from bench.wires import wire

from bench import core
from streamgauge.core.dialects import DIALECTS

NAMES = [dialect.name for dialect in DIALECTS]
BATCHED = [dialect.name for dialect in DIALECTS if dialect.deltas.kinds]
TINY = Sizes(streams=2, deltas=24, rounds=1, opened=3)
MARKED = (
    "before\n<!-- core: begin -->\nold\n<!-- core: end -->\nbetween\n"
    "<!-- core one by one: begin -->\nold\n<!-- core one by one: end -->\nafter\n"
)


def test_every_dialect_has_a_floor_and_a_wire() -> None:
    assert list(FLOORS) == [wire(name, 1).dialect for name in FLOORS]
    assert set(FLOORS) == set(NAMES)


@pytest.mark.parametrize("name", BATCHED)
def test_it_measures_each_dialect_with_plain_deltas(name: str) -> None:
    head, masked, full = rows([name], TINY)
    assert len(head) == len(masked) == len(full) == 4 + len(SHAPES)
    # A pause of the machine while ours runs makes a ratio of these tiny streams 0.00.
    assert all(float(cell) >= 0 for row in (masked, full) for cell in row[2 : 2 + len(SHAPES)])
    assert 0 < int(masked[-2]) < int(masked[-1])


def test_a_dialect_without_plain_deltas_has_its_memory_alone() -> None:
    head, row = rows(["watsonx"], TINY)
    assert len(head) == len(row) == 4 + len(SHAPES)
    assert not any(row[2 : 2 + len(SHAPES)])
    assert 0 < int(row[-2]) < int(row[-1])
    assert "watsonx" not in core.report([head, row]).rpartition("differently:")[2]


def test_both_count_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    one = wire("openai-chat", 24)
    decoded: list[bytes] = []
    reads = core.contents(one, 8, masked=True)
    core.floor(reads, decoded.append)
    assert len(decoded) == len(one.events) - 1  # [DONE] is not JSON
    packed = [msgspec.msgpack.encode(bundle) for bundle in core.bundles(one, reads, 2, 1)]
    assert len(list(core.unpacked(packed))) == 2 * len(reads)
    with pytest.raises(SystemExit):
        core.assemble(core.bundles(one, core.contents(one, 8, masked=True), 2)[:-1], 2)


@pytest.mark.parametrize("name", NAMES)
def test_an_open_stream_stays_within_its_limits(name: str) -> None:
    one = wire(name, 200)
    assert state_bytes(one) < STATE_LIMIT
    assert memory_bytes(one, 60) < MEMORY_LIMIT


def test_it_writes_its_section_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "performance.md"
    path.write_text(MARKED)
    main(["--streams=2", "--deltas=24", "--rounds=1", "--open=3", f"--document={path}", "gemini"])
    written = path.read_text()
    assert written.startswith("before\n<!-- core: begin -->\n| dialect ")
    assert written.endswith("<!-- core one by one: end -->\nafter\n")
    assert "<!-- core: end -->\nbetween\n<!-- core one by one: begin -->\n| dialect " in written
    assert [part.count("\n| gemini") for part in written.split("\n\n")] == [2, 0, 0, 3]
    assert "old" not in written
    assert "gemini" in capsys.readouterr().out


def test_it_writes_only_what_is_read_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "performance.md"
    path.write_text(MARKED)
    main(["--one-by-one", "--streams=2", "--deltas=24", "--rounds=1", f"--document={path}", "gemini"])
    written = path.read_text()
    assert written.startswith(MARKED.partition("<!-- core one")[0])
    assert written.count("\n| gemini") == 1
    assert capsys.readouterr().out.count("gemini") == 1
