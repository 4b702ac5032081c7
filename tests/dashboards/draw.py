"""Draws the dashboards with Grafana's own components, on data of a real Prometheus: `python -m tests.dashboards.draw OUT`.

It runs the demo with its failures, and on Kafka a tap and a worker, for MINUTES. Then it asks Prometheus for what each
panel shows, and takes a picture of each dashboard with Chromium, and one with its rows open. No Grafana is needed. Heat
maps are in no package of it: `page.tsx` draws them.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dashboards.source.generate import DASHBOARDS

from tests.dashboards.demo_system import ask_prometheus, filled, watched_demo
from tests.dashboards.test_panels import panels_of
from tests.kafka_broker.choice import session_broker
from tests.kafka_broker.fixtures import make_topics

ROOT = Path(__file__).parents[2]
DRAWING = Path(__file__).parent / "drawing"
_STEP_S = 5


def drawn_data(base: str, seconds: float) -> list[dict[str, Any]]:
    """The dashboards as JSON, each query with what Prometheus answers for the last `seconds`."""
    end = time.time()
    found = []
    for dashboard in DASHBOARDS:
        content: Any = json.loads(dashboard.json())
        for panel in panels_of(content):
            for target in panel.get("targets", ()):
                expression = filled(target["expr"])
                if target["instant"]:
                    answer = ask_prometheus(base, "query", query=expression, time=end)
                else:
                    answer = ask_prometheus(
                        base, "query_range", query=expression, start=end - seconds, end=end, step=_STEP_S
                    )
                target["result"] = answer["result"]
        shown = {dashboard.name: content["panels"]}
        if any(panel.get("collapsed") for panel in content["panels"]):
            shown[f"{dashboard.name}-open"] = opened(content["panels"])
        found += [
            {"name": name, "panels": panels, "start": end - seconds, "end": end} for name, panels in shown.items()
        ]
    return found


def opened(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The panels with every collapsed row opened: what it holds below it, and what follows moved down."""
    below = 0
    found = []
    for panel in panels:
        inside = panel.get("panels") or []
        found.append(_moved(panel, below))
        if inside:
            first = min(one["gridPos"]["y"] for one in inside)
            found += [_moved(one, panel["gridPos"]["y"] + 1 + below - first) for one in inside]
            below += max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in inside) - first
    return found


def _moved(panel: dict[str, Any], down: int) -> dict[str, Any]:
    return {**panel, "gridPos": {**panel["gridPos"], "y": panel["gridPos"]["y"] + down}}


def draw(data: list[dict[str, Any]], out: Path) -> int:
    """Writes OUT/<dashboard>.png. Returns the exit code of the drawing."""
    packages = subprocess.run(
        [ROOT / "scripts" / "install_node_packages", DRAWING], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    subprocess.run([ROOT / "scripts" / "install_packages", "chromium fonts-liberation", "chromium"], check=True)
    for name in ("page.tsx", "draw.mjs"):
        shutil.copy(DRAWING / name, packages)
    content = out / "data.json"
    content.write_text(json.dumps(data))
    code = subprocess.run(["node", "draw.mjs", content, out], cwd=packages, check=False).returncode
    print(*(path for path in sorted(out.glob("*.png"))), sep="\n")
    return code


def main() -> int:
    """Runs the system, then draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "scripts" / "install_packages", "prometheus", "promtool", "prometheus"], check=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgauge-draw-")))
        kafka = stack.enter_context(session_broker(folder / "broker"))
        base = stack.enter_context(watched_demo(folder / "system", kafka, make_topics(kafka)))
        time.sleep(60 * args.minutes)
        data = drawn_data(base, 60 * args.minutes)
    return draw(data, out)


if __name__ == "__main__":
    raise SystemExit(main())
