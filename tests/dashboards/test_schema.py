"""The dashboards have the types of Grafana's own schema (npm's @grafana/schema), by the TypeScript compiler."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dashboards.source.generate import DASHBOARDS

pytestmark = pytest.mark.slow

SCHEMA = Path(__file__).parent / "schema"
OPTIONS = ("--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022")


@pytest.fixture(scope="module")
def compiler(node_packages: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiles dashboards, by name, as values of Grafana's type; gives the compiler's messages."""
    packages = node_packages(SCHEMA)
    number = 0

    def compile(dashboards: dict[str, object]) -> str:
        nonlocal number
        number += 1
        folder = tmp_path_factory.mktemp("schema") / str(number)
        folder.mkdir()
        (folder / "node_modules").symlink_to(packages / "node_modules")
        shutil.copy(SCHEMA / "dashboard.ts", folder)
        for name, content in dashboards.items():
            (folder / f"{name}.ts").write_text(
                "import type { OurDashboard } from './dashboard.js';\n"
                f"const dashboard: OurDashboard = {json.dumps(content, indent=1)};\nexport default dashboard;\n"
            )
        sources = [f"{name}.ts" for name in dashboards]
        done = subprocess.run(
            ["node", "node_modules/typescript/bin/tsc", *OPTIONS, *sources],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(done.stdout) == bool(done.returncode), done.stderr
        return done.stdout

    return compile


def test_the_dashboards_have_grafanas_types(compiler: Any) -> None:
    assert compiler({one.name: json.loads(one.json()) for one in DASHBOARDS}) == ""


def test_the_compiler_finds_errors(compiler: Any) -> None:
    """A wrong member, a wrong value of a union, a wrong enum and an option of another kind of panel."""
    one: Any = json.loads(DASHBOARDS[0].json())
    misspelt = {**json.loads(json.dumps(one)), "titel": "Overview"}
    panels = {panel["type"]: panel for panel in one["panels"]}
    panels["stat"]["options"]["graphMode"] = "lines"
    panels["timeseries"]["options"]["colorMode"] = "value"
    panels["timeseries"]["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] = "piled"
    one["templating"]["list"][1]["refresh"] = 7
    found = compiler({"wrong": one, "misspelt": misspelt})
    for word in ("titel", '"lines"', "colorMode", '"piled"', "7"):
        assert word in found, found
