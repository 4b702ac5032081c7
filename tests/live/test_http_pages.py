"""The page and its JSON over a real admin port: what it serves, what it refuses, and its policy."""

import asyncio
import importlib.resources
import json
import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from scripts.runbook_pages import files

from streamgauge.live.http_pages import STATIC, LivePages
from streamgauge.live.mailbox import DirectAsk, NoAnswerError
from streamgauge.live.stored import FIRST_LIST
from streamgauge.metrics.http_server import AdminServer
from streamgauge.metrics.prometheus import Metrics
from tests.live.streams import Process, segment, token
from tests.metrics.test_http_server import ask
from tests.streams import MS, stream_id


def serving(test: Callable[[AdminServer], Awaitable[None]], pages: LivePages | None = None) -> None:
    async def run() -> None:
        process = Process()
        process.take([segment(1, 0, [token(100 * MS)])], 200 * MS)
        used = pages or LivePages(DirectAsk(process.view))
        async with AdminServer(Metrics(), lambda: True, pages=used) as server:
            await server.start("127.0.0.1:0")
            await test(server)

    asyncio.run(run())


def test_streams_and_a_stream_are_json() -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/streams")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        [row] = json.loads(answer.body)["open"]["streams"]
        one = await ask(server.address, f"/streams/{row['id']}")
        assert json.loads(one.body)["steps"][0]["tokens"] == 1
        assert json.loads((await ask(server.address, "/streams?limit=0")).body)["open"]["not_shown"] == 1

    serving(test)


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        ("/streams?limit=many", 400, "limit is a number"),
        ("/streams?limit=-1", 400, "limit is a number"),
        ("/streams?limit=201", 400, "limit is a number from 0 to 200"),
        ("/streams?limit=1000000000", 400, "limit is a number"),
        ("/streams?limit=%C2%B2", 400, "limit is a number"),
        ("/streams?sort=name", 400, "sort is one of silent, age, tokens"),
        ("/streams?own=yes", 400, "own is 0 or 1"),
        ("/streams/1", 400, "UUID"),
        (f"/streams/{UUID(int=1)}", 404, "no such stream"),
        ("/streams/", 400, "UUID"),
        ("/finished?outcome=eror", 400, "outcome is one of broken, completed"),
        ("/finished?id=xyz", 400, "id is a stream id"),
    ],
)
def test_what_cannot_be_answered_says_why(target: str, status: int, error: str) -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, target)
        assert answer.status == status
        assert error in json.loads(answer.body)["error"]

    serving(test)


def test_without_a_ledger_the_process_answers_for_itself() -> None:
    async def test(server: AdminServer) -> None:
        summary = json.loads((await ask(server.address, "/summary?model=m")).body)
        assert (summary["source"], summary["models"], summary["hour"]["streams"]) == ("process", None, 0)
        finished = json.loads((await ask(server.address, "/finished")).body)
        assert finished == {"source": "process", "streams": [], "more": False}
        assert json.loads((await ask(server.address, "/clients")).body) == []

    serving(test)


class GoneLedger:
    """A ledger that cannot be read."""

    def _fails(self, _: object) -> Any:
        raise NoAnswerError("the ledger cannot be read")

    summary = finished = stream = _fails

    def recent(self) -> None:
        return None


def test_a_ledger_that_cannot_be_read_is_said() -> None:
    async def test(server: AdminServer) -> None:
        for path in ("/summary", "/finished", f"/streams/{UUID(int=1)}"):
            answer = await ask(server.address, path)
            assert (answer.status, json.loads(answer.body)["error"]) == (503, "the ledger cannot be read")
        assert (await ask(server.address, "/streams")).status == 200

    process = Process()
    serving(test, LivePages(DirectAsk(process.view), GoneLedger()))


def test_a_busy_assembler_is_said() -> None:
    async def busy(_: object) -> object:
        raise NoAnswerError("the assembler did not answer within 5 s")

    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/streams")
        assert (answer.status, json.loads(answer.body)["error"]) == (503, "the assembler did not answer within 5 s")

    serving(test, LivePages(busy))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "target",
    [
        "/static/",
        "/static/nothing.js",
        "/static/../view.py",
        "/static/%2e%2e/view.py",
        "/index.html",
        "/static/index.html",
        "/runbooks/Nothing",
        "/runbooks/StreamsBreakMidway.html",
        "/runbooks/../static/page",
    ],
)
def test_no_other_file_is_served(target: str) -> None:
    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, target)).status == 404

    serving(test)


@pytest.mark.parametrize(
    ("target", "heading"),
    [("/runbooks", "Runbooks"), ("/runbooks/", "Runbooks"), ("/runbooks/StreamsBreakMidway", "StreamsBreakMidway")],
)
def test_runbooks_are_pages(target: str, heading: str) -> None:
    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, target)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f"<h1>{heading}</h1>" in answer.body.decode()
        assert "script-src 'self'" in answer.headers["content-security-policy"]

    serving(test)


def test_every_runbook_is_generated_as_it_is_and_its_links_lead_to_pages() -> None:
    folder = Path(str(importlib.resources.files("streamgauge.live").joinpath("runbooks")))
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict(files()), "run: make generated"

    async def test(server: AdminServer) -> None:
        links = {link for text in files().values() for link in re.findall(r'(?:href)="([^"#]+)', text)}
        assert len(links) > 50
        for link in links:
            assert (await ask(server.address, link)).status == 200, link

    serving(test)


async def first_answers(server: AdminServer, target: str = "/") -> Any:
    """What the page carries."""
    answer = await ask(server.address, target)
    assert answer.status == 200
    tags = _Tags()
    tags.feed(answer.body.decode())
    [data] = tags.data
    return json.loads(data)


def test_the_page_carries_the_numbers_in_memory_unless_it_has_filters() -> None:
    async def test(server: AdminServer) -> None:
        first = await first_answers(server)
        for name, target in (("live", "/streams"), ("summary", "/summary"), ("finished", "/finished?age=3600")):
            assert first[name].keys() == json.loads((await ask(server.address, target)).body).keys()
        assert [row["model"] for row in first["live"]["open"]["streams"]] == [END]
        assert first["reading"] is False
        assert await first_answers(server, "/?model=m") is None

    process = Process()
    begun = segment(1, 0, [token(100 * MS)])
    assert begun.request is not None
    process.take([msgspec.structs.replace(begun, request=msgspec.structs.replace(begun.request, model=END))], 200 * MS)
    serving(test, LivePages(DirectAsk(process.view)))


END = "</script><!--"


def test_the_page_carries_what_was_read_of_the_ledger_of_late() -> None:
    class Known(GoneLedger):
        def recent(self) -> Any:
            return known

    async def test(server: AdminServer) -> None:
        first = await first_answers(server)
        assert (first["summary"]["source"], first["reading"]) == (
            ("process", True) if known is None else ("ledger", False)
        )

    view = Process().view
    known: Any = None
    serving(test, LivePages(DirectAsk(view), Known()))
    known = msgspec.structs.replace(view.summary(), source="ledger"), view.kept(FIRST_LIST)
    serving(test, LivePages(DirectAsk(view), Known()))


def test_the_page_waits_for_no_busy_assembler() -> None:
    async def busy(_: object) -> object:
        await asyncio.sleep(60.0)
        raise AssertionError

    async def test(server: AdminServer) -> None:
        assert await first_answers(server) is None

    serving(test, LivePages(busy))  # type: ignore[arg-type]


def test_other_methods_and_foreign_hosts_are_refused() -> None:
    async def test(server: AdminServer) -> None:
        for target in ("/", "/streams", f"/streams/{UUID(bytes=stream_id(1))}", "/static/page.js"):
            assert (await ask(server.address, target, method="POST", extra="Content-Length: 0\r\n")).status == 404
            assert (await ask(server.address, target, host="evil.example")).status == 403
            assert (await ask(server.address, target)).status == 200

    serving(test)


def test_every_answer_has_the_policy() -> None:
    async def test(server: AdminServer) -> None:
        for target in ("/", "/streams", "/streams/1", "/static/page.js", "/static/page.css"):
            headers = (await ask(server.address, target)).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers

    serving(test)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.data: list[str] = []
        self._in_script = self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value for name in ("src", "href") if (value := given.get(name)) is not None]
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        self._in_data = given.get("type") == "application/json"
        self._in_script = tag in ("script", "style") and not self._in_data

    def handle_endtag(self, tag: str) -> None:
        self._in_script = self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data.append(data)
        if self._in_script and data.strip():
            self.inline.append(data)


def test_the_page_names_its_own_files_alone_and_has_nothing_inline() -> None:
    async def test(server: AdminServer) -> None:
        html = (await ask(server.address, "/")).body.decode()
        tags = _Tags()
        tags.feed(html)
        assert tags.inline == []
        assert len(tags.ids) == len(set(tags.ids))
        files = {link.removeprefix("static/") for link in tags.links if link.startswith("static/")}
        assert files <= STATIC.keys()
        assert {link for link in tags.links if not link.startswith(("static/", "#"))} == {"streams", "metrics"}
        for name in ("page.js", "cells.js", "charts.js", "timeline.js", "page.css"):
            text = (await ask(server.address, f"/static/{name}")).body.decode()
            assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
            assert {one.removeprefix("./") for one in re.findall(r'from "(\./[^"]+)"', text)} <= STATIC.keys()

    serving(test)
