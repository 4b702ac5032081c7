"""The table of clients: a row for each that ran, and the reason for one that did not."""

from pathlib import Path

import bench.clients
from bench.clients import HEADER, Client, row

from tests.clients.both_ways import Comparison, Run

RUN = Run("1.2", [["a"]], [], 7)


def test_the_table_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- clients: begin -->\n<!-- clients: end -->\n")
    options = [f"--installed={tmp_path}", "--timed=6", f"--document={page}"]
    bench.clients.main([*options, "ollama", "langchain-openai"])
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.read_text().splitlines()]
    [alone] = [line for line in lines if line[0] == "ollama"]
    assert (len(alone), alone[2:5]) == (len(HEADER), ["6 / 6, equal", "equal", "0 / 0, equal"])
    [missing] = [line for line in lines if line[0] == "langchain-openai"]
    assert missing[1] == "not run"
    assert "No such file" in missing[2]


def test_a_row_says_what_differs_and_what_cannot_be_told() -> None:
    client, times = Client("a", "development"), [(0.1, 0.3)] * 6
    worse = RUN._replace(seen=[["b"]], requests=9, warnings=["slow"])
    assert row(client, Comparison(RUN, worse, times, 2))[2:] == [
        "7 / 9, not equal", "not equal", "0 / 1, not equal", "100 ms", "+200.0 ms", "+200.0 to +200.0", "no",
    ]  # fmt: skip
    assert row(client, Comparison(RUN, RUN, [*times, (0.1, 0.1), (0.3, 0.1)], 2))[-1].startswith("unknown")
