"""`streamgauge top`: what the page of a running process shows, in the terminal."""

import contextlib
import http.client
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streamgauge.cli.admin_port import admin_token
from streamgauge.cli.parser import JSON, Arguments
from streamgauge.core.safe_values import escaped
from streamgauge.errors import DONE, Unavailable, UsageFault
from streamgauge.live.view import MAX_ROWS
from streamgauge.metrics.admin_access import Token
from streamgauge.metrics.http_server import AdminAddressError, split_address
from streamgauge.runtime.certificates import reading_authorities
from streamgauge.runtime.redaction import redacted_value
from streamgauge.settings.declarations import Settings

# How long one answer may take (seconds): the process itself gives up after 5.
TIMEOUT_S = 10.0
# The width if stdout is not a terminal (columns), and the rows then.
PLAIN_WIDTH = 160
PLAIN_ROWS = 50
# Lines of a terminal that are not rows of open streams: heads, totals, the worst streams, the prompt.
RESERVED_LINES = 16
WORST_ROWS = 3
# The shortest interval (seconds): the process makes an answer for each request. The longest is a day.
MIN_INTERVAL_S = 0.2
MAX_INTERVAL_S = 86_400.0
# Members that every answer of /streams has: another program's JSON lacks them.
MEMBERS = frozenset({"process", "version", "open", "hour", "worst"})

# The type of the relay's own errors (`taps/proxy/refusals.py`): the address is that of its port for clients.
_RELAY_ERROR = "streamgauge_relay_error"

_BARS = " ▁▂▃▄▅▆▇█"
# Seconds of ticks in one character.
_TICK_S = 3

Json = Mapping[str, Any]


@dataclass(frozen=True)
class AdminPort:
    """The admin port that is asked. `address`: as written; `tls` None: without TLS."""

    address: str
    host: str
    port: int
    tls: ssl.SSLContext | None
    token: Token | None

    def connection(self) -> http.client.HTTPConnection:
        """A connection that is not open yet."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_S, context=self.tls)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token.now()}"}


def run(settings: Settings, args: Arguments) -> int:
    """Shows the streams until Ctrl-C; once with --once, with --output json, or without a terminal. Raises Unavailable."""
    if not MIN_INTERVAL_S <= args.interval <= MAX_INTERVAL_S:
        raise UsageFault(f"--interval is out of range: give {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds")
    port = _port_of(args.address, settings)
    if args.output == JSON:
        text = _fetched(port, PLAIN_ROWS)
        _answer_of(text, port)
        sys.stdout.write(text + "\n")
        return DONE
    console = Console()
    if args.once or not console.is_terminal:
        console = console if console.is_terminal else Console(width=PLAIN_WIDTH)
        console.print(_view(port, PLAIN_ROWS))
        return DONE
    return _follow(console, port, args.interval)


def _port_of(address: str, settings: Settings) -> AdminPort:
    """The port at HOST:PORT or https://HOST:PORT. Raises UsageFault."""
    scheme, _, host_and_port = address.removesuffix("/").rpartition("://")
    if scheme not in ("", "http", "https"):
        raise UsageFault(f"{redacted_value(address)!r} is not an admin address: write HOST:PORT or https://HOST:PORT")
    try:
        host, port = split_address(host_and_port)
    except AdminAddressError as error:
        raise UsageFault(str(error)) from None
    if scheme != "https":
        if settings.admin_ca is not None:
            raise UsageFault("--admin-ca has no effect without TLS: write https://HOST:PORT")
        return AdminPort(address, host, port, None, admin_token(settings))
    try:
        with reading_authorities(settings.admin_ca):
            context = ssl.create_default_context(cafile=settings.admin_ca)
    except ValueError as error:
        raise UsageFault(f"--admin-ca: {error}") from None
    return AdminPort(address, host, port, context, admin_token(settings))


def _follow(console: Console, port: AdminPort, interval_s: float) -> int:
    """Shows the streams until Ctrl-C. If an answer fails after the first one, shows why above the last view, and goes on."""

    def view() -> Group:
        return _view(port, min(MAX_ROWS, max(3, console.height - RESERVED_LINES)))

    with contextlib.suppress(KeyboardInterrupt):
        last = view()
        with Live(last, console=console, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval_s)
                try:
                    now = last = view()
                except Unavailable as error:
                    now = Group(Text(f"{error}. The view below is the last one.", "bold red"), last)
                live.update(now, refresh=True)
    return DONE


def _view(port: AdminPort, rows: int) -> Group:
    return shown(_answer_of(_fetched(port, rows), port))


def _answer_of(text: str, port: AdminPort) -> Json:
    """An answer of /streams. Raises Unavailable for the answer of another program."""
    try:
        answer = _shown_as_text(json.loads(text))
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not answer.keys() >= MEMBERS:
        raise Unavailable(f"{port.address} is another program's: give the admin port of a running process")
    return answer


def _shown_as_text(value: Any) -> Any:
    """The value with texts that the terminal shows and does not obey."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list):
        return [_shown_as_text(item) for item in value]
    return {name: _shown_as_text(item) for name, item in value.items()} if isinstance(value, dict) else value


def _fetched(port: AdminPort, rows: int) -> str:
    """The answer of /streams, as JSON text. Raises Unavailable."""
    address, connection = port.address, port.connection()
    try:
        connection.request("GET", f"/streams?limit={rows}", headers=port.headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise Unavailable(
            f"nothing answers at {address} ({reason}): give the admin port of a running process"
        ) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        cure = " (--admin-token-file FILE)" if answer.status == http.client.UNAUTHORIZED else ""
        raise Unavailable(f"{address} answered {answer.status}: {_reason(text)}{cure}")
    return text


def _reason(text: str) -> str:
    try:
        error = json.loads(text)["error"]
        if isinstance(error, dict):
            if error.get("type") == _RELAY_ERROR:
                return "this is the port for clients: give the admin port (--admin, 127.0.0.1:9464 by default)"
            error = error["message"]
        reason = str(error)
    except (ValueError, LookupError, TypeError):
        reason = text.strip()[:200]
    return escaped(reason[:200])


def shown(answer: Json) -> Group:
    """The whole view of an answer of /streams."""
    return Group(
        Text(_head(answer)),
        _open_table(answer["open"]),
        *_hour(answer),
        *_coverage(answer.get("responses")),  # an earlier version has none
        *_worst_tables(answer["worst"], _period(answer)),
    )


def _head(answer: Json) -> str:
    heading = f"{answer['process']} {answer['version']}, {answer['now']}, looks since {answer['since']}"
    if answer["partitions"] is None:
        return heading
    if not answer["partitions"]:
        return f"{heading}; no partitions now ({answer['unready'] or 'other workers have all of them'})"
    return f"{heading}; only its partitions {', '.join(map(str, answer['partitions']))}"


def _open_table(streams: Json) -> Table | Text:
    title = f"{streams['total']} open streams, {streams['silent']} silent"
    if not streams["total"]:
        return Text("No open streams now.")
    if streams["not_shown"]:
        title += f"; {streams['not_shown']} not shown"
    rows = streams["streams"]
    longest = max([1, *(sum(part) for row in rows for part in _parts(row["ticks"] or []))])
    table = _table(
        title, ("stream", "upstream", "model", "tokens, last 60 s"), ("silent", "TTFT", "events", "max gap", "open")
    )
    for row in rows:
        silent = Text(seconds(row["silent_s"]), "bold red" if row["is_silent"] else "")
        table.add_row(
            *map(Text, _names(row)),
            Text(bars(row["ticks"], longest)),
            silent,
            seconds(row["first_token_s"]),
            str(row["token_events"]),
            seconds(row["longest_gap_s"]),
            seconds(row["open_s"]),
        )
    return table


def _hour(answer: Json) -> Iterator[Text]:
    hour = answer["hour"]
    if not hour["streams"]:
        yield Text(f"No finished streams {_period(answer)}.{_elsewhere(answer)}")
        return
    outcomes: Counter[str] = Counter()
    for part in hour["outcomes"]:
        outcomes.update(part)
    tokens: Counter[str] = Counter()
    for part in hour["tokens"]:
        tokens.update(part)
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    yield Text(f"Finished {_period(answer)}: {counts}.{_elsewhere(answer)}")
    counted = ", ".join(f"{count} {name}" for name, count in sorted(tokens.items())) or "none reported"
    yield Text(f"Tokens: {counted} ({hour['with_usage']} of {hour['streams']} streams reported usage)")
    yield from _money(answer)
    for limited in answer["rate_limits"]:
        yield Text(_limit(limited))


def _period(answer: Json) -> str:
    """What the finished streams are of: the last hour, or since when this process has counted them."""
    since = answer["hour"].get("since", answer["since"])  # an earlier version has no `since` of the hour
    counted_s = (datetime.fromisoformat(answer["now"]) - datetime.fromisoformat(since)).total_seconds()
    return "in the last hour" if counted_s >= 3_599 else f"since {since} ({seconds(counted_s)})"


def _elsewhere(answer: Json) -> str:
    if answer["process"] == "tap":
        return " A tap counts only while it is asked: the admin ports of the workers have all finished streams."
    return "" if answer["partitions"] is None else " Other workers have the streams of other partitions."


def _money(answer: Json) -> Iterator[Text]:
    hour = answer["hour"]
    if hour["cost_usd"] is not None:
        costs = [usd for part in hour["cost_usd"] for usd in part.values()]
        cost = f"{sum(costs):.4f} USD" if hour["priced"] or not hour["streams"] else "unknown"
        part = f" ({hour['priced']} of {hour['streams']} streams)" if 0 < hour["priced"] < hour["streams"] else ""
        yield Text(f"Cost: {cost}{part}")
    for budget in answer["budgets"]:
        share = budget["spent_usd"] / budget["limit_usd"]
        text = (
            f"Budget of {budget['key']} {budget['value']}: {budget['spent_usd']:.2f} of {budget['limit_usd']:.2f} USD"
        )
        yield Text(f"{text} ({share:.0%})", "bold red" if share >= 1 else "")
    audit = answer["audit"]
    if audit is not None:
        agrees = "agrees with the bill" if audit["agrees"] else "does not agree with the bill"
        yield Text(f"Audit of {audit['first']} to {audit['end']}: {agrees}", "" if audit["agrees"] else "bold red")


def _coverage(responses: Json | None) -> Iterator[Text]:
    if not responses or not responses["seen"]:
        return
    without: Counter[str] = Counter()
    for row in responses["not_captured"]:
        without[row["reason"]] += row["responses"]
    counts = ", ".join(f"{count} {reason}" for reason, count in without.most_common())
    share = f"{responses['captured']} of {responses['seen']} ({responses['captured'] / responses['seen']:.1%})"
    yield Text(f"Responses with a record: {share}{f'; without: {counts}' if counts else ''}")


def _limit(limited: Json) -> str:
    limit = limited["rate_limit"]
    parts = [
        f"{limit[f'{kind}_remaining']} of {limit[f'{kind}_limit'] or '?'} {kind} left"
        for kind in ("requests", "tokens")
        if limit[f"{kind}_remaining"] is not None
    ]
    key = limited["credential_id"] or "unknown"
    return f"Rate limit of {limited['upstream']}, key {key}: {', '.join(parts) or 'unknown'}"


def _worst_tables(worst: Json, period: str) -> Iterator[Table]:
    for name, title in (
        ("first_token", "Slowest first tokens (TTFT), reasoning included"),
        ("gap", "Longest gaps"),
        ("broken", "Broken, newest first"),
    ):
        rows = worst[name][:WORST_ROWS]
        if rows:
            table = _table(
                f"{title}, {period}", ("stream", "upstream", "model", "outcome"), ("TTFT", "max gap", "ended, ago")
            )
            for row in rows:
                table.add_row(
                    *map(Text, (*_names(row), str(row["outcome"]))),
                    seconds(row["first_token_s"]),
                    seconds(row["longest_gap_s"]),
                    seconds(row["ended_s_ago"]),
                )
            yield table


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True, max_width=40)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _names(row: Json) -> tuple[str, str, str]:
    return str(row["id"]), str(row["upstream"] or "-"), str(row["model"] or "-")


def seconds(value: float | None) -> str:
    """A duration as a short text; unknown is a dash, not 0."""
    if value is None:
        return "-"
    if value < 0.9995:
        return f"{1000 * value:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def bars(ticks: Sequence[int] | None, longest: int) -> str:
    """Token events over the last minute, three seconds a character, the newest at the right. `longest`: of a full bar."""
    if ticks is None:
        return "-"
    return "".join([_BARS[-(-sum(part) * (len(_BARS) - 1) // longest)] for part in _parts(ticks)])


def _parts(ticks: Sequence[int]) -> list[Sequence[int]]:
    return [ticks[at : at + _TICK_S] for at in range(0, len(ticks), _TICK_S)]
