"""The lines of the terminal: a total in the state that the keys chose. No line is wider than the terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from streamgauge.top.columns import GAP, Column, fitted
from streamgauge.top.keys import HELP, HELP_OF_KEYS, STREAM, STREAMS, TOTALS, State, selected_index
from streamgauge.top.streams import BAD, FAINT, GOOD, PLAIN, WARN, Cell, chosen, error_text, style_of, table_of
from streamgauge.top.total import TAP, Total
from streamgauge.top.words import UNKNOWN, age, bars, count, number_of, seconds, usd

Json = Mapping[str, Any]

TITLE, CHOSEN = "bold", "reverse"
# The widest footer names all keys; from its end these fall away.
_KEYS = (
    ("?", "help"), ("q", "quit"), ("/", "filter"), ("s", "sort"), ("enter", "stream"), ("tab", "totals"), ("space", "pause"),
)  # fmt: skip
_BACK_KEYS = (("?", "help"), ("q", "quit"), ("esc", "back"), ("up, down", "scroll"), ("space", "pause"))
# Lines that the list has at least, however much is said above it.
_LEAST_LIST = 4
_MEANINGS = (
    ("first token", "from the request to the first token event, reasoning included"),
    ("silent for", "time since the last token event of an open stream; red: longer than --silent-seconds"),
    ("longest gap", "between two token events"),
    ("when", "how long the stream has been open, or how long ago it ended"),
    ("last minute", "token events, three seconds a bar, the newest at the right"),
    ("at", "the process that the stream is at, with several addresses"),
)
_COLOURS = (
    ("completed", GOOD, "the stream ended as its API format ends one"),
    ("client_abort", WARN, "the client left before the end; this is no error"),
    ("http_error", style_of("http_error"), "the upstream refused the request with a status of 300 or more"),
    ("truncated, ...", BAD, "the stream broke"),
    ("silent", BAD, "more output is due, and none has come for --silent-seconds"),
)


@dataclass(frozen=True)
class Detail:
    """The answer of /streams/ID, or why there is none. Both None: it has not come yet."""

    answer: Json | None = None
    problem: str | None = None


def picture(total: Total, state: State, width: int, height: int, detail: Detail | None = None) -> list[Text]:
    """The lines of a terminal: at most `height`, none wider than `width` characters. `detail`: of the selected stream."""
    above = _wrapped(_above(total, state), width)[: max(height - 1 - _LEAST_LIST, 1)]
    room = max(height - 1 - len(above), 0)
    if state.screen == STREAMS:
        body = _list(total, state, width, room)
    else:
        body = _wrapped(_screen(total, state, detail or Detail(), width), width)
        body = body[min(state.top, max(len(body) - room, 0)) :]
    lines = [*above, *body[:room]]
    lines += [Text()] * (height - 1 - len(lines))
    return [_cut(line, width) for line in [*lines, _footer(state, width)][:height]]


def last_top(total: Total, state: State, width: int, height: int, detail: Detail | None = None) -> int:
    """The largest `top` of a state that shows something else: there the last line is at the bottom. Arguments: as above."""
    above = _wrapped(_above(total, state), width)[: max(height - 1 - _LEAST_LIST, 1)]
    body = _wrapped(_screen(total, state, detail or Detail(), width), width)
    return max(len(body) - max(height - 1 - len(above), 0), 0)


def whole(total: Total, state: State, width: int) -> list[Text]:
    """All of it below each other, without keys: for --once."""
    rows = chosen(total.rows, state.filter, state.sort)
    lines = _wrapped(_above(total, state), width)
    lines += _table(total, rows, width) if rows else _wrapped(_none(total, state), width)
    lines.append(Text())
    lines += _wrapped(_totals(total, width), width)
    return [_cut(line, width) for line in lines]


def _cut(line: Text, width: int) -> Text:
    if line.cell_len <= width:
        return line
    line = line.copy()
    line.truncate(width, overflow="ellipsis" if width > 1 else "crop")
    return line


def _wrapped(lines: Iterable[Text], width: int) -> list[Text]:
    """The lines, broken at blanks; a line that continues another is indented."""
    found: list[Text] = []
    for line in lines:
        parts = _broken(line, width) if line.cell_len > width else [line]
        found += parts
    return found


def _broken(line: Text, width: int) -> list[Text]:
    if width < 20:
        return [line]
    parts, start, at = [], 0, 0
    text = line.plain
    room = width
    while cell_len(text[start:]) > room:
        end = start
        while cell_len(text[start : end + 1]) <= room:
            end += 1
        half = (start + end) // 2
        at = max(text.rfind(stop, half, end + 1) for stop in ("; ", ": ", ". ")) + 1
        at = at or text.rfind(" ", start + 1, end + 1)
        end, after = (at, at + 1) if at > start else (end, end)
        parts.append(line[start:end])
        start, room = after, width - 2
    parts.append(line[start:])
    return [parts[0], *(Text("  ") + part for part in parts[1:])]


# --- above the list -------------------------------------------------------------------------------------------------


def labels_of(total: Total) -> list[str]:
    """A short name for each process: its port, if all are at one host; its host, if all have one port; else its address."""
    addresses = [one.address.rpartition(":") for one in total.heard]
    hosts, ports = {host for host, _, _ in addresses}, {port for _, _, port in addresses}
    if len(addresses) > 1 and len(hosts) == 1:
        return [f":{port}" for _, _, port in addresses]
    if len(addresses) > 1 and len(ports) == 1:
        return [host for host, _, _ in addresses]
    return [one.address for one in total.heard]


def _above(total: Total, state: State) -> Iterator[Text]:
    yield _head(total, state)
    for problem in total.problems:
        yield Text(problem, BAD)
    if not total.answers or state.screen not in (STREAMS, TOTALS):
        return
    yield _numbers(total)
    if total.streams:
        yield _speed(total)
    for hint in total.hints:
        yield Text(hint, FAINT)
    for budget in total.members("budgets"):
        if budget["spent_usd"] >= budget["limit_usd"]:
            yield Text(_budget(budget), BAD)


def _head(total: Total, state: State) -> Text:
    names = Counter(str(answer["process"]) for _, answer in total.answers)
    if len(total.heard) == 1 and total.answers:
        answer = total.answers[0][1]
        line = Text(f"{answer['process']} {answer['version']} at {total.heard[0].address}", TITLE)
        if answer["partitions"]:
            line.append(f", partitions {_ranges(answer['partitions'])}")
        elif answer["partitions"] is not None and not answer["unready"]:
            line.append(", no partitions now (other workers have all of them)")
    else:
        kinds = ", ".join(number_of(number, name) if name != "up" else f"{number} up" for name, number in names.items())
        line = Text(
            f"{number_of(len(total.heard), 'address')}: {kinds or 'none answers'}",
            TITLE,
        )
    line.append(f"   {total.now[11:19]} UTC" if total.now else "")
    if state.paused:
        line.append("   paused", WARN)
    return line


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in ascending order, as `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _numbers(total: Total) -> Text:
    line = Text(f"{count(total.open)} open, ")
    line.append(f"{count(total.silent)} silent", BAD if total.silent else PLAIN)
    if not total.streams:
        return line.append(f". No stream has finished {total.period}{_began(total)}.")
    completed = total.outcomes["completed"] / total.streams
    line.append(f". {count(total.streams)} finished {total.period}, {100 * completed:.1f} % completed: ")
    for at, (outcome, number) in enumerate(total.outcomes.most_common()):
        line.append(", " if at else "").append(f"{count(number)} {outcome}", style_of(outcome))
    return line


def _began(total: Total) -> str:
    """Since when a process runs that knows the hour before by its ledger alone."""
    if not total.counted or total.counted_s <= total.running_s + 60:
        return ""
    began = min(str(answer["since"]) for answer in total.counted)[11:19]
    return f" by the ledger; {total.counted[0]['process']} runs since {began} UTC ({age(total.running_s)})"


def _speed(total: Total) -> Text:
    line = Text("First token, reasoning included: ")
    line.append(_quantiles(total, "first_token")).append("; gaps ").append(_quantiles(total, "gaps"))
    if total.a_minute is not None:
        line.append(f"; {total.a_minute:.1f} streams a minute")
    if total.cost_usd is not None:
        line.append("; ").append(_cost(total))
    return line


def _quantiles(total: Total, name: str) -> str:
    texts = []
    for share in (0.5, 0.95):
        found = total.quantile(name, share)
        value = UNKNOWN if found is None else f"{'>' if found[1] else ''}{seconds(found[0])}"
        texts.append(f"p{100 * share:.0f} {value}")
    return ", ".join(texts)


def _cost(total: Total) -> str:
    if not total.priced:
        return "cost unknown"
    of_some = (
        f" (of {count(total.priced)} of {number_of(total.streams, 'stream')})" if total.priced < total.streams else ""
    )
    return f"cost {usd(total.cost_usd or 0.0)}{of_some}"


# --- the list -------------------------------------------------------------------------------------------------------


def _list(total: Total, state: State, width: int, room: int) -> list[Text]:
    rows = chosen(total.rows, state.filter, state.sort)
    if not rows:
        return _wrapped(_none(total, state), width)[:room]
    index = selected_index(state, [row["id"] for row in rows])
    more = Text(f"{count(total.not_shown)} more open streams are not listed.", FAINT) if total.not_shown else None
    lines = max(room - 1 - (more is not None), 1)
    first = max(min(index - lines // 2, len(rows) - lines), 0)
    table = _table(total, rows[first : first + lines], width, index - first)
    return table if more is None else [*table, more]


def _none(total: Total, state: State) -> Iterator[Text]:
    if total.rows:
        yield Text(f"None of the {number_of(len(total.rows), 'listed stream')} matches the filter {state.filter!r}.")
    elif total.answers:
        yield Text(
            "No stream is open, and none of the hour is kept here. The next request through a tap shows here.", FAINT
        )


def _table(total: Total, rows: Sequence[Json], width: int, at: int | None = None) -> list[Text]:
    """A line of titles, then one for each stream. `at`: the selected one."""
    if not rows:
        return []
    return _drawn(table_of(rows, labels_of(total)), width, at)


def _drawn(table: Sequence[tuple[Column, Sequence[Cell]]], width: int, at: int | None = None) -> list[Text]:
    cells = dict(table)
    columns = fitted([column for column, _ in table], width)
    lines = [_line([(column, size, Cell(column.title, TITLE)) for column, size in columns], width)]
    for number in range(len(table[0][1])):
        line = _line([(column, size, cells[column][number]) for column, size in columns], width)
        if number == at:
            line.pad_right(max(width - line.cell_len, 0))
            line.stylize(CHOSEN)
        lines.append(line)
    return lines


def _line(cells: Sequence[tuple[Column, int, Cell]], width: int) -> Text:
    line = Text()
    for at, (column, size, cell) in enumerate(cells):
        line.append(" " * GAP if at else "")
        if column.right:
            line.append(" " * max(size - cell_len(cell.text), 0))
        line.append(_sized(cell.text, size, exact=not column.right), cell.style)
    line.rstrip()
    return line


def _sized(text: str, size: int, *, exact: bool) -> str:
    """The text in `size` characters of the terminal; a cut one ends in `…`."""
    if cell_len(text) > size:
        text = set_cell_size(text, size - 1) + "…" if size > 1 else set_cell_size(text, size)
    return set_cell_size(text, size) if exact else text


# --- the other screens ----------------------------------------------------------------------------------------------


def _screen(total: Total, state: State, detail: Detail, width: int) -> Iterator[Text]:
    if state.screen == TOTALS:
        yield from _totals(total, width)
    elif state.screen == HELP:
        yield from _help()
    elif state.screen == STREAM:
        row = next((row for row in total.rows if row["id"] == state.selected), None)
        yield from _stream(state.selected or "", row, detail, total, width)


def _pairs(pairs: Sequence[tuple[str, Cell]]) -> Iterator[Text]:
    widest = max((cell_len(name) for name, _ in pairs), default=0)
    for name, cell in pairs:
        yield Text().append(f"{name}{' ' * (widest - cell_len(name))}  ", FAINT).append(cell.text, cell.style)


def _totals(total: Total, width: int) -> Iterator[Text]:
    yield from _processes(total, width)
    if total.minutes:
        first, last = min(total.minutes), max(total.minutes)
        values = [
            sum(total.minutes[minute + 60 * place] for place in range(3)) for minute in range(first, last + 1, 180)
        ]
        yield Text(f"Finished streams, three minutes a bar: {bars(values, max(values))}")
    for upstream, outcomes in sorted(total.upstreams.items()):
        line = Text(f"{upstream}: ")
        for at, (outcome, number) in enumerate(outcomes.most_common()):
            line.append(", " if at else "").append(f"{count(number)} {outcome}", style_of(outcome))
        cost = total.costs.get(upstream)
        yield line if cost is None else line.append(f"; {usd(cost)}")
    if total.streams:
        kinds = ", ".join(f"{count(number)} {name.replace('_', ' ')}" for name, number in sorted(total.tokens.items()))
        of = f"{count(total.with_usage)} of {number_of(total.streams, 'stream')} reported usage"
        yield Text(f"Tokens {total.period}: {kinds or 'none reported'} ({of})")
        if total.cost_usd is not None:
            yield Text(f"{_cost(total)[0].upper()}{_cost(total)[1:]}")
    for budget in total.members("budgets"):
        yield Text(_budget(budget), BAD if budget["spent_usd"] >= budget["limit_usd"] else PLAIN)
    if total.audit is not None:
        agrees = "agrees with the bill" if total.audit["agrees"] else "does not agree with the bill"
        yield Text(
            f"Audit of {total.audit['first']} to {total.audit['end']}: {agrees}",
            PLAIN if total.audit["agrees"] else BAD,
        )
    if total.responses is not None and total.responses[0]:
        seen, captured, reasons = total.responses
        without = ", ".join(f"{count(number)} {reason}" for reason, number in reasons.most_common())
        share = f"{count(captured)} of {count(seen)} ({100 * captured / seen:.1f} %)"
        yield Text(f"Responses with a record: {share}{f'; without: {without}' if without else ''}")
    for limited in total.members("rate_limits"):
        yield Text(_limit(limited))


def _processes(total: Total, width: int) -> Iterator[Text]:
    if len(total.heard) < 2:
        return
    rows = []
    for one in total.heard:
        answer = one.answer
        if answer is None:
            rows.append([Cell(one.address), Cell("does not answer", BAD), *[Cell(UNKNOWN)] * 4])
            continue
        state = Cell("does not answer", BAD) if one.problem else Cell(f"{answer['process']} {answer['version']}")
        partitions = UNKNOWN if answer["partitions"] is None else _ranges(answer["partitions"]) or "none"
        finished = (
            UNKNOWN if answer["process"] == TAP and not total.counts(answer) else count(answer["hour"]["streams"])
        )
        rows.append(
            [
                Cell(one.address),
                state,
                Cell(partitions),
                Cell(str(answer["since"]).replace("T", " ").removesuffix("Z")),
                Cell(count(answer["open"]["total"])),
                Cell(finished),
            ]
        )
    titles = (("address", 1, False), ("process", 2, False), ("partitions", 5, False), ("since (UTC)", 6, False),
              ("open", 3, True), ("finished", 4, True))  # fmt: skip
    table = []
    for at, (title, rank, right) in enumerate(titles):
        cells = [row[at] for row in rows]
        size = max([len(title), *(cell_len(cell.text) for cell in cells)])
        table.append((Column(title, rank, min(size, 21), size, right), cells))
    yield from _drawn(table, width)
    yield Text()


def _budget(budget: Json) -> str:
    share = budget["spent_usd"] / budget["limit_usd"]
    spent = f"{budget['spent_usd']:.2f} of {budget['limit_usd']:.2f} USD ({share:.0%})"
    return f"Budget of {budget['key']} {budget['value']}: {spent}"


def _limit(limited: Json) -> str:
    limit = limited["rate_limit"]
    parts = [
        f"{limit[f'{kind}_remaining']} of {limit[f'{kind}_limit'] or '?'} {kind} left"
        for kind in ("requests", "tokens")
        if limit[f"{kind}_remaining"] is not None
    ]
    key = limited["credential_id"] or "unknown"
    return f"Rate limit of {limited['upstream']}, key {key}: {', '.join(parts) or 'unknown'}"


def _help() -> Iterator[Text]:
    yield Text("Keys", TITLE)
    yield from _pairs([(key, Cell(meaning)) for key, meaning in HELP_OF_KEYS])
    yield Text()
    yield Text("Columns; a narrow terminal shows the most important ones", TITLE)
    yield from _pairs([(name, Cell(meaning)) for name, meaning in _MEANINGS])
    yield Text()
    yield Text("Colours", TITLE)
    widest = max(len(name) for name, _, _ in _COLOURS)
    for name, style, meaning in _COLOURS:
        yield Text().append(name.ljust(widest + 2), style).append(meaning)


def _stream(stream_id: str, row: Json | None, detail: Detail, total: Total, width: int) -> Iterator[Text]:
    """One stream: its facts, with the names of the page, and its reads."""
    yield Text(f"Stream {stream_id}", TITLE)
    if detail.problem is not None:
        yield Text(f"{detail.problem[0].upper()}{detail.problem[1:]}.", WARN)
    answer = detail.answer
    shown = answer["stream"] if answer is not None else row
    if shown is None:
        return
    yield from _pairs(list(_facts(shown, answer, row, total)))
    steps = [] if answer is None else answer["steps"]
    if not steps:
        return
    yield Text()
    kept = f"{count(answer['reads'])} reads" if answer is not None else ""
    if answer is not None and answer["skipped_reads"]:
        kept += f", of which {count(len(steps))} are kept"
    yield Text(kept, TITLE)
    yield from _drawn(_reads(steps), width)


def _facts(shown: Json, answer: Json | None, row: Json | None, total: Total) -> Iterator[tuple[str, Cell]]:
    is_open = shown["outcome"] is None
    state = ("silent" if shown["is_silent"] else "open") if is_open else str(shown["outcome"])
    style = (BAD if shown["is_silent"] else PLAIN) if is_open else style_of(state)
    yield "Outcome", Cell(state, style)
    yield "Error", Cell(error_text(shown["error"]) if shown["error"] else "none", BAD if shown["error"] else PLAIN)
    if answer is not None and answer["error_at_s"] is not None:
        yield "Error came after", Cell(seconds(answer["error_at_s"]))
    yield "HTTP status", Cell(str(shown["status_code"] or UNKNOWN))
    yield "Upstream", Cell(shown["upstream"] or UNKNOWN)
    yield "Model", Cell(shown["model"] or UNKNOWN)
    yield "API format", Cell(shown["dialect"] or UNKNOWN)
    yield "Tenant", Cell(shown["tenant"] or UNKNOWN)
    yield "Started at (UTC)", Cell((shown["started_at"] or UNKNOWN).replace("T", " ").removesuffix("Z"))
    yield "First token, reasoning included", Cell(seconds(shown["first_token_s"]))
    if answer is not None:
        yield "First text", Cell(seconds(answer["record"]["timing"]["first_content_s"]))
    yield "Longest gap between token events", Cell(seconds(shown["longest_gap_s"]))
    yield "Stalls", Cell(count(shown["stalls"]), BAD if shown["stalls"] else PLAIN)
    yield "Token events", Cell(count(shown["token_events"]))
    yield "Output tokens", Cell(count(shown["output_tokens"]))
    yield "Finish reason", Cell(shown["finish_reason"] or UNKNOWN)
    if is_open:
        yield "Open for", Cell(seconds(shown["open_s"]))
        yield "Silent for", Cell(seconds(shown["silent_s"]), BAD if shown["is_silent"] else PLAIN)
        yield "Tap heard, ago", Cell(seconds(shown["tap_heard_s"]))
    else:
        yield "Ended after", Cell(seconds(shown["end_s"]))
        yield "Ended, ago", Cell(age(shown["ended_s_ago"]))
    cost = None if answer is None else answer.get("cost")  # of a stream in the process's ledger
    if cost is not None:
        yield "Cost", Cell(f"{cost['usd']} USD ({cost['price_source']})")
    elif answer is not None and answer.get("cost_unknown"):
        yield "Cost", Cell(f"unknown: {answer['cost_unknown'].replace('_', ' ')}")
    if answer is not None:
        integrity = answer["record"]["integrity"]
        reasons = [reason for reason in integrity["reasons"] if not (is_open and reason == "no_end")]
        yield (
            "Capture",
            Cell(f"incomplete: {', '.join(reasons)}" if reasons else "complete" + (" so far" if is_open else "")),
        )
    if row is not None and len(total.heard) > 1:
        yield "Process", Cell(total.heard[row["at"]].address)


def _reads(steps: Sequence[Json]) -> list[tuple[Column, list[Cell]]]:
    numbers, number = [], 0
    for step in steps:
        number += step["skipped_before"] + 1
        numbers.append(Cell(str(number)))
    gaps = [
        Cell(seconds(step["gap_s"]) + (", stall" if step["stall"] else ""), BAD if step["stall"] else PLAIN)
        for step in steps
    ]
    brought = [
        Cell(", ".join(step["kinds"]) or ("part of an event" if step["bytes"] else "head or framing"),
             BAD if "error" in step["kinds"] else PLAIN)
        for step in steps
    ]  # fmt: skip
    return [
        (Column("read", 1, 6, 6, right=True), numbers),
        (Column("at", 2, 12, 12, right=True), [Cell(seconds(step["at_s"])) for step in steps]),
        (Column("gap before it", 3, 18, 18, right=True), gaps),
        (Column("brought", 4, 18, 60), brought),
        (Column("token events", 5, 12, 12, right=True), [Cell(count(step["tokens"])) for step in steps]),
        (Column("events", 6, 8, 8, right=True), [Cell(count(step["events"])) for step in steps]),
        (Column("bytes", 7, 12, 12, right=True), [Cell(count(step["bytes"])) for step in steps]),
    ]


# --- the footer -----------------------------------------------------------------------------------------------------


def _footer(state: State, width: int) -> Text:
    if state.typing:
        line = Text("filter: ", TITLE).append(state.filter).append(" ", CHOSEN)
        help_ = "   enter: done   esc: clear"
        return line.append(help_, FAINT) if line.cell_len + len(help_) <= width else line
    line = Text()
    keys = list(_KEYS if state.screen == STREAMS else _BACK_KEYS)
    if state.screen == STREAMS:
        keys[2:4] = [("/", f"filter {state.filter}" if state.filter else "filter"), ("s", f"sort: {state.sort}")]
    for at, (key, meaning) in enumerate(keys):
        part = Text("  " if at else "").append(key, TITLE).append(f" {meaning}")
        if line.cell_len + part.cell_len > width:
            break
        line.append(part)
    return line
