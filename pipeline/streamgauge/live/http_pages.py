"""The page and its JSON on the admin port: /, /static/NAME, /streams, /streams/ID, /summary, /finished, /clients, and the
runbooks of alerts: /runbooks/, /runbooks/ALERT.

`AdminServer` checks the Host first.
"""

import asyncio
import dataclasses
import functools
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec

from streamgauge.live.answers import Client, FirstAnswers
from streamgauge.live.mailbox import Ask, NoAnswerError
from streamgauge.live.stored import FIRST_LIST, StoredStreams, choice_of, wanted_of
from streamgauge.live.view import MAX_ROWS, ROWS, SORTS, LiveView
from streamgauge.metrics.http_server import Answer

# Scripts, styles and requests of this origin alone, and nothing inline. `AdminServer` adds what every answer has.
POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}
# The files that are served, by the part of the path after /static/. The build may not have uPlot: then they are missing.
STATIC = {
    "icon.svg": "image/svg+xml",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "cells.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "runbook.css": "text/css; charset=utf-8",
    "streams.js": "text/javascript; charset=utf-8",
    "summary.js": "text/javascript; charset=utf-8",
    "timeline.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.min.css": "text/css; charset=utf-8",
    "uplot/LICENSE": "text/plain; charset=utf-8",
}
# How long the page waits for the numbers that it carries (seconds): it is painted without them, if the assembler is busy.
FIRST_S = 0.05
# Their place in the page.
_FIRST = b'<script type="application/json" id="first-answers">%b</script>'
# A page of docs/runbooks, which scripts/runbook_pages.py writes as HTML.
_RUNBOOK = re.compile("/runbooks(?:/([A-Za-z]*))?")
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_ENCODER = msgspec.json.Encoder()


class LivePages:
    """Answers the page's requests. `ask`: asks the view of this process; `stored`: reads its ledger, if it has one;
    `clients`: what clients of its upstreams need, if it is a proxy.
    """

    def __init__(self, ask: Ask, stored: StoredStreams | None = None, clients: Sequence[Client] = ()) -> None:
        self._ask = ask
        self.stored = stored
        self._clients = clients

    async def __call__(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """The answer to a GET of `path`; None if there is no such page."""
        if path == "/":
            return await self._page(query)
        if runbook := _RUNBOOK.fullmatch(path):
            return _file(f"runbooks/{runbook[1] or 'README'}.html", _HTML)
        if path.startswith("/static/"):
            name = path.removeprefix("/static/")
            return _file(f"static/{name}", STATIC[name]) if name in STATIC else None
        try:
            if path == "/streams":
                return await self._overview(query)
            if path.startswith("/streams/"):
                return await self._timeline(path[9:])
            if path == "/summary":
                return await self._summary(query)
            if path == "/finished":
                return await self._finished(query)
            if path == "/clients":
                return _json(200, self._clients)
        except NoAnswerError as error:
            return _json(503, {"error": str(error)})
        return None

    async def _page(self, query: Mapping[str, str]) -> Answer | None:
        """The page, with the numbers of the last hour that are in memory, unless it is opened with filters."""
        page = _file("static/index.html", _HTML)
        if page is None or query:
            return page
        # In JSON, `<` is in strings alone: escaped, no text can end the element.
        first = _ENCODER.encode(await self._first()).replace(b"<", rb"\u003c")
        return dataclasses.replace(page, body=page.body.replace(_FIRST % b"null", _FIRST % first))

    async def _first(self) -> FirstAnswers | None:
        """The numbers that are in memory; None if the view does not answer at once. No ledger is read."""
        try:
            async with asyncio.timeout(FIRST_S):
                first = await self._ask(_first_of)
        except (NoAnswerError, TimeoutError):
            return None
        if self.stored is not None:
            known = self.stored.recent()
            first.reading = known is None
            if known is not None:
                first.summary, first.finished = known
        return first

    async def _overview(self, query: Mapping[str, str]) -> Answer:
        rows, sort = query.get("limit", str(ROWS)), query.get("sort", SORTS[0])
        if not (rows.isascii() and rows.isdigit() and len(rows) <= 6 and int(rows) <= MAX_ROWS):
            return _json(400, {"error": f"limit is a number from 0 to {MAX_ROWS}"})
        if sort not in SORTS:
            return _json(400, {"error": f"sort is one of {', '.join(SORTS)}"})
        own = query.get("own", "0")
        if own not in ("0", "1"):
            return _json(400, {"error": "own is 0 or 1"})
        return _json(200, await self._ask(lambda view: view.overview(int(rows), sort, own=own == "1")))

    async def _timeline(self, name: str) -> Answer:
        try:
            stream = UUID(name)
        except ValueError:
            return _json(400, {"error": "a stream's id is a UUID"})
        timeline = await self._ask(lambda view: view.timeline(stream))
        stored = self.stored
        if stored is not None and (timeline is None or timeline.stream.outcome is not None):
            known = await asyncio.to_thread(stored.stream, stream)
            if timeline is None:
                timeline = known
            elif known is not None:
                timeline.cost, timeline.cost_unknown = known.cost, known.cost_unknown
        if timeline is None:
            where = "its ledger has none" if stored else "it has ended and is not among those that are kept"
            return _json(404, {"error": f"this process has no such stream: {where}"})
        return _json(200, timeline)

    async def _summary(self, query: Mapping[str, str]) -> Answer:
        if self.stored is None:
            return _json(200, await self._ask(lambda view: view.summary()))
        return _json(200, await asyncio.to_thread(self.stored.summary, choice_of(query)))

    async def _finished(self, query: Mapping[str, str]) -> Answer:
        try:
            wanted = wanted_of(query)
        except ValueError as error:
            return _json(400, {"error": str(error)})
        if self.stored is None:
            return _json(200, await self._ask(lambda view: view.kept(wanted)))
        return _json(200, await asyncio.to_thread(self.stored.finished, wanted))


def _first_of(view: LiveView) -> FirstAnswers:
    return FirstAnswers(view.overview(), view.summary(), view.kept(FIRST_LIST))


def _json(status: int, value: object) -> Answer:
    return Answer(status, _ENCODER.encode(value), _JSON, POLICY)


@functools.cache  # the files of STATIC and the runbooks: 250 KB
def _file(name: str, content_type: str) -> Answer | None:
    file = importlib.resources.files("streamgauge.live").joinpath(*name.split("/"))
    if not file.is_file():
        return None
    return Answer(200, file.read_bytes(), content_type, POLICY)
