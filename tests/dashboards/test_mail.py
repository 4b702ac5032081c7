"""From simulated traffic to an e-mail, as in docs/guides/alerts.md: its links open, and its command lists the streams."""

import contextlib
import re
import shlex
import urllib.request
from email.message import EmailMessage
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamgauge.metrics.rule_files import prometheus_rules
from streamgauge.metrics.rules import Durations, Links
from tests.dashboards.mailbox import mailbox
from tests.dashboards.monitoring import prometheus_with_rules, started_alertmanager
from tests.ports import free_port
from tests.running import here, start, wait_for, wait_until_ready

pytestmark = pytest.mark.slow

ALERTMANAGER = Path(__file__).parents[2] / "dashboards" / "prometheus" / "alertmanager.yml"
# A page comes after seconds instead of minutes.
FACTOR = 1 / 30
PATIENCE_S = 180.0


def test_broken_streams_become_a_mail_whose_links_and_command_work(tmp_path: Path, alertmanager_tools: None) -> None:
    admin, ledger = f"127.0.0.1:{free_port()}", f"sqlite:///{tmp_path}/demo/ledger.sqlite"
    links = Links(page=f"http://{admin}", dashboards="https://grafana.example.org", ledger=ledger)
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(mailbox())
        manager = stack.enter_context(started_alertmanager(tmp_path, quick(box.address)))
        flags = ["--serve", "--admin", admin, "--data-dir", str(tmp_path / "demo")]
        wait_until_ready(stack.enter_context(start("demo", flags, tmp_path / "demo")))
        rules = prometheus_rules(durations=Durations(FACTOR), links=links)
        stack.enter_context(prometheus_with_rules(tmp_path, {"demo": [admin]}, rules, manager))

        def page() -> EmailMessage | None:
            pages = (mail for mail in box.mails if mail["to"] == "on-call@localhost")
            return next((mail for mail in pages if "StreamsBreakMidway" in text_of(mail)), None)

        mail = wait_for(page, "mail about broken streams", PATIENCE_S)
        text = text_of(mail)
        assert re.match(r"PAGE: Streams of \w+ break after they began", mail["subject"])
        assert "StreamsBreakMidway" in opened(link(text, "Runbook"))
        assert "<title>Streamgauge" in opened(link(text, "Streams"))
        (upstream,) = set(re.findall(r"Streams of (\w+) break", mail["subject"]))
        assert f"/d/streamgauge-upstream?from=now-3h&to=now&var-upstream={upstream}\n" in text + "\n"
        (command,) = re.findall(rf"^streamgauge (.* upstream={upstream} .*)$", text, re.MULTILINE)
        listed = here(*shlex.split(command), "--output", "jsonl")
        assert listed.returncode == 0, listed.stderr
        assert f'"upstream":"{upstream}"' in listed.stdout


def quick(address: str) -> dict[str, Any]:
    """The configuration of docker-compose.yml, with the test's mailbox and shorter times of waiting."""
    content: dict[str, Any] = yaml.safe_load(ALERTMANAGER.read_text())
    content["global"]["smtp_smarthost"] = address
    content["route"] |= {"group_wait": "1s", "group_interval": "2s"}
    return content


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part is not None
    return unescape(str(part.get_content())).replace("\r\n", "\n")


def link(text: str, name: str) -> str:
    return re.findall(rf"^{name}: (\S+)$", text, re.MULTILINE)[0]


def opened(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode())
