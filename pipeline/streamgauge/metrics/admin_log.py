"""The admin log: requests to the admin port, refused requests, and the settings at each start.

A line is a JSON object with `time` (RFC 3339, UTC) and `event`. The file is for the operator, mode 0600, and is only appended
to; logrotate may move it away. It has no token, password or Host of a request.

| event | other members |
|---|---|
| `started` | `version`, `settings`: those that were given, with *** for secrets |
| `read` | `address`, `path`, `status`, `token`: whether the request needed one, `count` |
| `refused` | `address`, `path`, `status`, `reason`, `count` |

`count`: how many such requests the line stands for. A request that is like an earlier one (same event, address and
status, and for `read` the same path, unless there is no such page) within REPEAT_S is counted. The count is written after
REPEAT_S, with the next request to the port, or at the end. `not_written`: how many requests of this event had no line before
this one (LINES_PER_S).

A refused request (`Refusals`) is also counted in a metric, and logged by the process at most once a minute for each reason.
"""

import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from streamgauge.core.safe_values import escaped
from streamgauge.metrics.prometheus import Metrics
from streamgauge.metrics.table import ADMIN_REFUSED
from streamgauge.runtime.faults import report_fault

# How long equal requests are only counted, and refusals of one reason not logged again (seconds): an open page asks each
# second or two, a scraper repeats its request every few.
REPEAT_S = 60.0
# Kinds of requests that are counted apart. With more, the kind with the oldest line is written and removed.
MAX_KINDS = 1_024
# The most lines of one event in a second, so that a client with many addresses or paths fills no disk (2 KiB a line: 40 KiB a
# second). Each event has its own, so that refused requests hide no read.
LINES_PER_S = 20
# From this status on there is no such page: paths can be invented, and would use up the lines of a second.
_NO_PAGE = 400
# The most characters of a path that are kept: a stream's is 45 long.
MAX_PATH = 200


_log = logging.getLogger("streamgauge.metrics.http_server")


class _Kind(NamedTuple):
    event: str
    address: str
    status: int
    subject: str  # the path of a page that exists, or the reason of a refusal


class AdminLog:
    """The admin log in `file`, made if it is missing. `clock`: seconds; `wall`: Unix time. Raises OSError."""

    def __init__(
        self, file: Path, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._lines = _File(file)
        self._clock, self._wall = clock, wall
        self._counted: OrderedDict[_Kind, list[Any]] = OrderedDict()  # [time of the line, requests since, members]
        self._second = 0
        # By event: lines of this second, and requests without a line.
        self._written, self._dropped = Counter[str](), Counter[str]()

    def started(self, version: str, settings: Mapping[str, object]) -> None:
        """Write the start of a command with these settings."""
        self._write("started", version=version, settings=settings)

    def read(self, address: str, path: str, status: int, *, token: bool) -> None:
        """Count a request that was answered. `token`: whether the port needs one."""
        path = _shown(path)
        subject = path if status < _NO_PAGE else ""
        self._count(_Kind("read", address, status, subject), {"path": path, "token": token})

    def refused(self, address: str, path: str, status: int, reason: str) -> None:
        """Count a request that was refused."""
        self._count(_Kind("refused", address, status, reason), {"path": _shown(path), "reason": reason})

    def write_due(self) -> None:
        """Write what was counted and has waited for REPEAT_S, at most LINES_PER_S lines."""
        now = self._clock()
        for _ in range(LINES_PER_S):
            oldest = next(iter(self._counted.values()), None)
            if oldest is None or now - oldest[0] < REPEAT_S:
                return
            self._forget_oldest()

    def close(self) -> None:
        """Write what is counted and not written."""
        while self._counted:
            self._forget_oldest()
        for event, count in self._dropped.items():
            self._write(event, not_written=count)
        self._dropped.clear()
        self._lines.close()

    def _count(self, kind: _Kind, members: Mapping[str, object]) -> None:
        now = self._clock()
        entry = self._counted.get(kind)
        if entry is None:
            if len(self._counted) >= MAX_KINDS:
                self._forget_oldest()
            self._counted[kind] = [now, 0, members]
            self._request(kind, members, 1)
            return
        entry[1] += 1
        if now - entry[0] >= REPEAT_S:
            self._request(kind, members, entry[1])
            entry[:] = now, 0, members
            self._counted.move_to_end(kind)

    def _forget_oldest(self) -> None:
        kind, (_, count, members) = self._counted.popitem(last=False)
        if count:
            self._request(kind, members, count)

    def _request(self, kind: _Kind, members: Mapping[str, object], count: int) -> None:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._written.clear()
        if self._written[kind.event] >= LINES_PER_S:
            self._dropped[kind.event] += count
            return
        self._written[kind.event] += 1
        dropped = self._dropped.pop(kind.event, 0)
        more = {"not_written": dropped} if dropped else {}
        self._write(kind.event, address=kind.address, status=kind.status, **members, count=count, **more)

    def _write(self, event: str, **members: object) -> None:
        at = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = msgspec.json.encode({"time": at, "event": event, **members}).decode()
        self._lines.emit(logging.LogRecord("", logging.INFO, "", 0, line, (), None))


class Reason(NamedTuple):
    """A reason why a request was refused. `name`: the value of the metric's label; `sentence`: for the log."""

    name: str
    status: int
    sentence: str


WITHOUT_TOKEN = Reason("token", 401, "without its token (401)")
LIMITED = Reason("limited", 429, "because of many wrong tokens from its address (429)")
OTHER_HOST = Reason("host", 403, "because of its Host header (403): allow it with --admin-host NAME")
MALFORMED = Reason("malformed", 400, "that is malformed (400)")


class Refusals:
    """The refusals of one admin port."""

    def __init__(self, metrics: Metrics, log: AdminLog | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics, self._log, self._clock = metrics, log, clock
        self._since: dict[Reason, int] = {}
        self._logged_at: dict[Reason, float] = {}

    def add(self, reason: Reason, address: str, path: str, *, quiet: bool = False) -> None:
        """Count a refusal. `quiet`: it is not logged."""
        self._metrics.add(ADMIN_REFUSED.name, reason=reason.name)
        if self._log is not None:
            self._log.refused(address, path, reason.status, reason.name)
        if quiet:
            return
        now = self._clock()
        self._since[reason] = self._since.get(reason, 0) + 1
        if reason not in self._logged_at:
            _log.warning("the admin port rejected a request %s", reason.sentence)
        elif now - self._logged_at[reason] >= REPEAT_S:
            _log.warning(
                "the admin port rejected %d more requests %s, the last one from %s",
                self._since[reason], reason.sentence, address or "a closed connection",
            )  # fmt: skip
        else:
            return
        self._logged_at[reason], self._since[reason] = now, 0


class _File(WatchedFileHandler):
    """The file, opened again when another program has moved it. A write that fails is reported once."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(message)s"))

    def _open(self) -> Any:
        opened = super()._open()
        Path(self.baseFilename).chmod(0o600)
        return opened

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        if (error := sys.exc_info()[1]) is not None:
            report_fault("the admin log", error)


def _shown(path: str) -> str:
    return escaped(path[:MAX_PATH])
