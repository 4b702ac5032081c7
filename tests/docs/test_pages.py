"""The commands of each page of the documents run, in their order, and print what the page shows."""

import asyncio
import json
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgauge_demo.simulator import Simulator
from tests.dashboards.monitoring import started_alertmanager
from tests.demo.running import simulator
from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.docs.stage import Stage, scenarios
from tests.kafka_broker.administration import delete_topics

pytestmark = pytest.mark.slow

RUN = {page: [block for block in blocks(page) if block.is_run or block.mark == "file"] for page in PAGES}
RUNBOOKS = sorted(ROOT.glob("docs/runbooks/*.md"))
WITH_COMMANDS = [page for page, found in RUN.items() if page not in RUNBOOKS and any(block.is_run for block in found)]
# Programs that a page may need and that a machine may lack.
TOOLS = ("amtool", "curl", "jq", "promtool")
# Pages whose commands ask a ledger: `up` has recorded some streams before.
AFTER_TRAFFIC = """\
<!-- run: background -->
```sh
streamgauge up --upstream openai=https://api.openai.com --tenant-header X-Team
```

```python
from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8080/openai/v1")
for team in ("search", "support"):
    messages = [{"role": "user", "content": "hello"}]
    headers = {"X-Team": team}
    stream = client.chat.completions.create(
        model="gpt-4o-mini", messages=messages, stream=True, extra_headers=headers
    )
    list(stream)
```

```console
$ streamgauge ledger query --by tenant --output jsonl | wc -l
2
```
"""
ASK_A_LEDGER = {"docs/guides/on-call.md", "docs/guides/operations.md", "docs/guides/usage.md"}


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def providers() -> Iterator[Simulator]:
    with simulator(scenarios=scenarios()) as started:
        yield started


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=relative)
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, providers: Simulator, request: pytest.FixtureRequest
) -> None:
    commands = "\n".join(block.text for block in RUN[page] if block.is_run)
    missing = [tool for tool in TOOLS if re.search(rf"\b{tool}\b", commands) and not shutil.which(tool)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    kafka: Callable[[], str] = lambda: str(request.getfixturevalue("kafka"))  # noqa: E731
    with Stage(tmp_path, providers, kafka) as stage:
        if relative(page) in ASK_A_LEDGER:
            play(stage, blocks(page, AFTER_TRAFFIC))
        play(stage, RUN[page])
    if stage.broker:
        asyncio.run(delete_topics(stage.broker, stage.prefix))


def test_each_runbook_silences_its_alert(tmp_path: Path, providers: Simulator) -> None:
    amtool = shutil.which("amtool") or pytest.skip("not installed: amtool")
    with (
        Stage(tmp_path / "stage", providers, str) as stage,
        started_alertmanager(tmp_path, {"route": {"receiver": "none"}, "receivers": [{"name": "none"}]}) as address,
    ):
        stage.add_program("amtool", f"{amtool} --alertmanager.url=http://{address}")
        for page in RUNBOOKS:
            play(stage, RUN[page])
        with urllib.request.urlopen(f"http://{address}/api/v2/silences", timeout=10) as answer:
            matchers = [matcher for silence in json.load(answer) for matcher in silence["matchers"]]
    silenced = {matcher["value"] for matcher in matchers if matcher["name"] == "alertname"}
    assert silenced == {page.stem for page in RUNBOOKS} - {"README"}


def play(stage: Stage, shown: list[Block]) -> None:
    for block in shown:
        stage.play(block)


def test_a_command_that_fails_or_prints_something_else_is_an_error(tmp_path: Path, providers: Simulator) -> None:
    wrong = [
        "```sh\nfalse\n```\n",
        "<!-- run: exit 1 -->\n```sh\ntrue\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```python\n1 / 0\n```\n",
        "<!-- run: background -->\n```sh\nstreamgauge up --upstream nowhere\n```\n",
    ]
    with Stage(tmp_path, providers, str) as stage:
        for text in wrong:
            with pytest.raises(AssertionError, match=r"README\.md:"):
                play(stage, blocks(ROOT / "README.md", text))
        play(stage, blocks(ROOT / "README.md", "<!-- run: exit 1 -->\n```sh\nfalse\n```\n"))


def test_what_stays_ends_with_its_page(tmp_path: Path, providers: Simulator) -> None:
    with Stage(tmp_path, providers, str) as stage:
        play(stage, blocks(ROOT / "README.md", "<!-- run: background -->\n```sh\nsleep 1000\n```\n"))
        [process] = stage.running
        assert process.poll() is None
    assert process.poll() is not None
