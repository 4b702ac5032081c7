"""`streamgauge top`: what the pages of running processes show, in the terminal."""

import contextlib
import json
import os
import sys
from dataclasses import replace

from rich.console import Console

from streamgauge.cli.admin_port import admin_token
from streamgauge.cli.parser import JSON, Arguments
from streamgauge.core.safe_values import escaped
from streamgauge.errors import DONE, UsageFault
from streamgauge.settings.declarations import Settings
from streamgauge.top.following import ROWS, Following, Wanted, asked_once, rows_for
from streamgauge.top.keys import STREAM, STREAMS, State, pressed
from streamgauge.top.picture import last_top, picture, whole
from streamgauge.top.ports import AdminPort, port_at
from streamgauge.top.streams import SORTS, chosen
from streamgauge.top.terminal import Terminal
from streamgauge.top.total import Total

DEFAULT_ADDRESS = "127.0.0.1:9464"
# The width if stdout is not a terminal, and COLUMNS does not say (columns).
PLAIN_WIDTH = 160
# The shortest interval (seconds): the process makes an answer for each request. The longest is a day.
MIN_INTERVAL_S = 0.2
MAX_INTERVAL_S = 86_400.0
# How long the terminal may be without a new picture (seconds): ages of answers grow.
_PATIENCE_S = 5.0


def run(settings: Settings, args: Arguments) -> int:
    """Shows the streams until `q` or Ctrl-C; once with --once, --output json, or without a terminal. Raises Unavailable."""
    if not MIN_INTERVAL_S <= args.interval <= MAX_INTERVAL_S:
        raise UsageFault(f"--interval is out of range: give {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} seconds")
    ports = _ports(args.addresses or (DEFAULT_ADDRESS,), settings)
    state = State(sort=args.sort, filter=escaped(args.filter or ""))
    if args.output == JSON and len(ports) == 1:
        text = ports[0].streams(ROWS, SORTS[state.sort][1])
        ports[0].answer(text)
        sys.stdout.write(text + "\n")
        return DONE
    heard, wanted = asked_once(ports, Wanted(rows_for(searching=bool(state.filter), line=0), SORTS[state.sort][1]))
    if args.output == JSON:
        answers = [{"address": one.address, "problem": one.problem, "answer": one.answer} for one in heard]
        sys.stdout.write(json.dumps(answers, ensure_ascii=False) + "\n")
        return DONE
    console = Console(highlight=False, markup=False, emoji=False)
    if args.once or not console.is_terminal:
        width = console.width if console.is_terminal or "COLUMNS" in os.environ else PLAIN_WIDTH
        for line in whole(Total(heard), state, width):
            console.print(line, width=width, no_wrap=True, crop=False, soft_wrap=True)
        return DONE
    terminal = Terminal(console)
    following = Following(ports, heard, wanted, args.interval, terminal.wake)
    with contextlib.suppress(KeyboardInterrupt), terminal.opened():
        following.start()
        try:
            _follow(terminal, following, state)
        finally:
            following.stop()
    return DONE


def _ports(addresses: tuple[str, ...], settings: Settings) -> list[AdminPort]:
    """The ports, each once. Raises UsageFault."""
    if settings.admin_ca is not None and not any(address.startswith("https://") for address in addresses):
        raise UsageFault("--admin-ca has no effect without TLS: write https://HOST:PORT")
    token = admin_token(settings)
    return [port_at(address, settings.admin_ca, token) for address in dict.fromkeys(addresses)]


def _follow(terminal: Terminal, following: Following, state: State) -> None:
    """Shows the streams until the person ends it."""
    total = following.total
    while not state.ended:
        if not state.paused:
            total = following.total
        rows = chosen(total.rows, state.filter, state.sort)
        at = next((row["at"] for row in total.rows if row["id"] == state.selected), 0)
        stream = (at, state.selected) if state.screen == STREAM and state.selected is not None else None
        searching = bool(state.filter) or state.typing
        following.want(rows_for(searching=searching, line=state.index), SORTS[state.sort][1], stream)
        width, height = terminal.size
        detail = None if stream is None else following.detail(stream[1])
        terminal.show(picture(total, state, width, height, detail))
        for key in terminal.keys(_PATIENCE_S):
            state = pressed(state, key, [row["id"] for row in rows], max(height - 6, 1))
        if state.screen != STREAMS:
            state = replace(state, top=min(state.top, last_top(total, state, width, height, detail)))
