"""What each key changes: the state of the view, and its change by a key. `terminal` reads keys, `picture` shows the state."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streamgauge.top.streams import SORTS

STREAMS, TOTALS, STREAM, HELP = "streams", "totals", "stream", "help"

# The longest filter (characters).
MAX_FILTER = 200

# Keys, with what a person reads in the help.
HELP_OF_KEYS = (
    ("up, down, k, j", "select a stream, or scroll"),
    ("page up, page down", "scroll by a screen"),
    ("home, end, g, G", "the first or last line"),
    ("enter", "the selected stream: its facts and its reads"),
    ("escape", "back; in the list: clear the filter"),
    ("/", "filter: words in id, upstream, model, outcome or tenant; or FIELD=WORD, as outcome=broken"),
    ("s, S", f"next or previous order: {', '.join(SORTS)}"),
    ("tab", "totals: processes, outcomes, tokens, cost, budgets, limits; and back"),
    ("space", "pause, and go on"),
    ("?", "this help"),
    ("q, ctrl-c", "end"),
)

# What terminals send for a key, after the escape character.
_SEQUENCES = {
    "[A": "up", "[B": "down", "OA": "up", "OB": "down", "[5~": "page up", "[6~": "page down",
    "[H": "home", "[F": "end", "OH": "home", "OF": "end", "[1~": "home", "[4~": "end", "[7~": "home", "[8~": "end",
}  # fmt: skip
_KEY = re.compile(r"\x1b(\[[0-9;?]*[@-~]|O[@-~])|(.)", re.DOTALL)
_NAMES = {
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\t": "tab", " ": "space", "\x7f": "backspace", "\x08": "backspace",
    "\x15": "clear",
}  # fmt: skip
_SAME = {"k": "up", "j": "down", "g": "home", "G": "end"}
# An escape sequence whose end has not come yet.
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*|O)?$")


@dataclass(frozen=True)
class State:
    """What the person chose. `selected`: a stream's id; `index`: its line, for when it is gone; `top`: the first line that
    shows; `screen`: what shows; `back`: the screen before it.
    """

    screen: str = STREAMS
    back: str = STREAMS
    sort: str = "worst"
    filter: str = ""
    typing: bool = False
    selected: str | None = None
    index: int = 0
    top: int = 0
    paused: bool = False
    ended: bool = False


def is_unfinished(text: str) -> bool:
    """Whether the text may be the beginning of an escape sequence."""
    return _UNFINISHED.search(text) is not None


def keys_of(text: str) -> Iterator[str]:
    """The names of the keys in what a terminal sent; a key without a name is its character."""
    for found in _KEY.finditer(text):
        sequence, char = found.groups()
        key = _SEQUENCES.get(sequence, "") if sequence is not None else _NAMES.get(char, char)
        if key and (len(key) > 1 or key.isprintable()):
            yield key


def selected_index(state: State, ids: Sequence[str]) -> int:
    """The line of the selected stream in a list of ids; of one that is gone the line where it was; 0 for none."""
    if state.selected in ids:
        return ids.index(state.selected)
    return max(min(state.index, len(ids) - 1), 0)


def pressed(state: State, key: str, ids: Sequence[str], page: int) -> State:
    """The state after a key. `ids`: of the listed streams, in order; `page`: lines of a screen."""
    if state.typing:
        return _typed(state, key)
    key = _SAME.get(key, key)
    if key == "q":
        return replace(state, ended=True)
    if key == "space":
        return replace(state, paused=not state.paused)
    if key == "?":
        return _leave(state) if state.screen == HELP else replace(state, screen=HELP, back=state.screen, top=0)
    if key == "tab":
        return replace(state, screen=STREAMS if state.screen == TOTALS else TOTALS, top=0)
    if state.screen != STREAMS:
        if key in ("escape", "enter", "backspace"):
            return _leave(state)
        return replace(state, top=max(_moved(state.top, key, page, None), 0))
    return _in_list(state, key, ids, page)


def _leave(state: State) -> State:
    back = state.back if state.screen == HELP else STREAMS
    return replace(state, screen=back, back=STREAMS, top=0)


def _in_list(state: State, key: str, ids: Sequence[str], page: int) -> State:
    if key == "/":
        return replace(state, typing=True)
    if key == "escape":
        return replace(state, filter="", top=0)
    if key in ("s", "S"):
        names = list(SORTS)
        step = 1 if key == "s" else -1
        sort = names[(names.index(state.sort) + step) % len(names)]
        return replace(state, sort=sort, selected=None, index=0, top=0)
    index = selected_index(state, ids)
    if not ids:
        return state
    if key == "enter":
        return replace(state, screen=STREAM, selected=ids[index], index=index, top=0)
    index = max(min(_moved(index, key, page, len(ids) - 1), len(ids) - 1), 0)
    return replace(state, selected=ids[index], index=index)


def _typed(state: State, key: str) -> State:
    if key in ("enter", "up", "down", "tab"):
        return replace(state, typing=False)
    if key == "escape":
        return replace(state, typing=False, filter="", top=0)
    if key == "backspace":
        return replace(state, filter=state.filter[:-1], top=0)
    if key == "clear":
        return replace(state, filter="", top=0)
    char = " " if key == "space" else key
    if len(char) > 1 or len(state.filter) >= MAX_FILTER:
        return state
    return replace(state, filter=state.filter + char, selected=None, index=0, top=0)


def _moved(line: int, key: str, page: int, last: int | None) -> int:
    """The line that a key leads to. `last`: the last line; None: it is not known, and `end` goes far."""
    steps = {"up": -1, "down": 1, "page up": -page, "page down": page}
    if key == "home":
        return 0
    if key == "end":
        return 1_000_000 if last is None else last
    return line + steps.get(key, 0)
