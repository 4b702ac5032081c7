"""Draws what a terminal showed as an SVG: one screen, or several, each from its time to that of the next one.

A line that stays the same through several screens is drawn once. Where motion is not wanted (prefers-reduced-motion), and in
a program that knows no animation, the last screen is shown.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.color import ColorType
from rich.style import Style
from rich.text import Text

# A character (px), and the space around the text.
CHARACTER, LINE, SPACE = 8.4, 18, 12
PAGE, TEXT, FAINT = "#11161d", "#e6eaf0", "#8b95a3"
# The terminal's colours by their number: red, green, yellow, blue, magenta, cyan.
COLOURS = {1: "#ff8a80", 2: "#5dd27c", 3: "#f2c14e", 4: "#6cb2ff", 5: "#bda7ff", 6: "#6fd6d6"}


@dataclass(frozen=True)
class Shown:
    """A screen and its time (seconds). Its lines have the escape sequences of their styles."""

    at_s: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Run:
    """A line of the terminal from one time to another (seconds)."""

    row: int
    text: str
    begin_s: float
    end_s: float


def svg_of(screens: Sequence[Shown], columns: int, lines: int, title: str, end_s: float = 0.0) -> str:
    """The screens, the first one from 0 on; an animation, if there are several, that begins again at `end_s`."""
    width, height = columns * CHARACTER + 2 * SPACE, lines * LINE + 2 * SPACE
    runs = list(_runs(screens, lines, end_s))
    times = sorted({(run.begin_s, run.end_s) for run in runs})
    names = {time: f"t{number}" for number, time in enumerate(times)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
        ' font-family="ui-monospace,\'DejaVu Sans Mono\',Menlo,Consolas,monospace" font-size="14"'
        f' role="img" aria-labelledby="title"><title id="title">{html.escape(title)}</title>',
        "<style>text{white-space:pre}",
    ]
    if len(screens) > 1:
        parts += [_rule(names[time], *time, end_s) for time in times]
        parts.append("@media (prefers-reduced-motion:reduce){g{animation:none!important}}")
    parts.append(f'</style><rect width="{width:g}" height="{height:g}" rx="8" fill="{PAGE}"/>')
    for time in times:
        drawn = "".join(_line(run) for run in runs if (run.begin_s, run.end_s) == time)
        hidden = ' visibility="hidden"' if time[1] < end_s else ""
        parts.append(f'<g class="{names[time]}" fill="{TEXT}"{hidden}>{drawn}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _runs(screens: Sequence[Shown], lines: int, end_s: float) -> Iterator[_Run]:
    times = [screen.at_s for screen in screens] + [end_s]
    for row in range(lines):
        begin = 0
        texts = [screen.lines[row] if row < len(screen.lines) else "" for screen in screens] + [None]
        for at in range(1, len(texts)):
            if texts[at] != texts[begin]:
                if texts[begin]:
                    yield _Run(row, str(texts[begin]), times[begin], times[at])
                begin = at


def _rule(name: str, begin_s: float, end_s: float, all_s: float) -> str:
    """The visibility of the lines that are shown from one time to another."""
    begin, end = (100 * time / all_s for time in (begin_s, end_s))
    before = "" if begin_s <= 0 else "0%{visibility:hidden}"
    after = "" if end_s >= all_s else f"{end:.2f}%{{visibility:hidden}}"
    return (
        f"@keyframes {name}{{{before}{begin:.2f}%{{visibility:visible}}{after}}}"
        f".{name}{{animation:{name} {all_s:g}s step-end infinite}}"
    )


def _line(run: _Run) -> str:
    text = Text.from_ansi(run.text)
    y, column, parts = SPACE + run.row * LINE, 0, []
    for piece in text.divide(sorted({0, *(edge for span in text.spans for edge in (span.start, span.end))})):
        size = cell_len(piece.plain)
        style = Style.combine([Style.null(), *(_style(span.style) for span in piece.spans)])
        fill, back = _fill(style), None
        if style.reverse:
            fill, back = PAGE, _fill(style) or TEXT
        if back:
            x = SPACE + column * CHARACTER
            parts.append(f'<rect x="{x:g}" y="{y}" width="{size * CHARACTER:g}" height="{LINE}" fill="{back}"/>')
        if piece.plain.strip():
            bold = ' font-weight="bold"' if style.bold else ""
            colour = f' fill="{fill}"' if fill else ""
            parts.append(
                f'<text x="{SPACE + column * CHARACTER:g}" y="{y + 13}" textLength="{size * CHARACTER:g}"'
                f"{colour}{bold}>{html.escape(piece.plain)}</text>"
            )
        column += size
    return "".join(parts)


def _style(style: str | Style) -> Style:
    return Style.parse(style) if isinstance(style, str) else style


def _fill(style: Style) -> str | None:
    colour = style.color
    if colour is not None and colour.type is ColorType.STANDARD and colour.number is not None:
        return COLOURS.get(colour.number % 8)
    return FAINT if style.dim else None
