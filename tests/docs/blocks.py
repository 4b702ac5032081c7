"""The code blocks of the documents, and what each of them is for.

A fence names its language. `sh`, `console` and `python` are run; `toml`, `yaml`, `ini` and other files are written for the
commands that read them; `json` and `promql` are parsed; `text` is for people (a drawing, an output). A comment on the line
before a fence, which no reader sees, gives more:

    <!-- run: background -->        it is one program that stays: started, and stopped at the end of the page
    <!-- run: exit 1 -->            its exit code
    <!-- run: terminal -->          its output goes to a terminal of 100 columns
    <!-- file: prices.toml -->      written into the page's folder under this name
    <!-- not run: REASON -->        it is not run, and not read by a command

In a `console` block the lines that begin with `$ ` are commands, and the lines below are what they print. There a line `...`
stands for any lines, `...` within a line for anything, and a number or an id for any other one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "dashboards" / "METRICS.md",
)
RUN = frozenset({"sh", "console", "python"})
FILES = frozenset({"toml", "yaml", "ini", "sql", "nginx", "haproxy"})
PARSED = frozenset({"json", "promql"})
LANGUAGES = RUN | FILES | PARSED | {"text", "email"}

# Without the texts within a paragraph: to parse them took half of the time.
_MARKDOWN = MarkdownIt("commonmark").disable("inline")
_ID = re.compile(r"(?=.*\d)[0-9a-fT.:Z+-]{8,}")
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")
_MARK = re.compile(r"<!-- (run|not run|file): (.+) -->\s*")


@dataclass(frozen=True)
class Block:
    """A fence. `mark` and `value`: of the comment before it, both empty without one. `line`: of its first line, from 1."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    value: str = ""

    @property
    def place(self) -> str:
        """Its page and line, for messages."""
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether it is a program or commands that a test runs."""
        return self.language in RUN and self.mark not in ("not run", "file")


@cache
def blocks(page: Path, text: str | None = None) -> list[Block]:
    """The fences of a page, in order. `text`: instead of the file's."""
    found: list[Block] = []
    mark, value = "", ""
    for token in _MARKDOWN.parse(page.read_text(encoding="utf-8") if text is None else text):
        if token.type == "html_block" and (comment := _MARK.fullmatch(token.content.strip())):
            mark, value = comment.groups()
        elif token.type in ("fence", "code_block"):
            line = token.map[0] + 1 if token.map else 0
            language = token.info.strip() if token.type == "fence" else "text"
            found.append(Block(page, line, language, token.content, mark, value))
            mark, value = "", ""
        elif token.content:
            mark, value = "", ""
    return found


def problems(block: Block) -> Iterator[str]:
    """What is wrong with a block by itself, as sentences."""
    if block.language not in LANGUAGES:
        yield f"{block.place}: a fence needs a language, one of {', '.join(sorted(LANGUAGES))}; it has {block.language!r}"
    if block.language in FILES and block.mark not in ("file", "not run"):
        yield f"{block.place}: a file needs <!-- file: NAME --> and a command that reads it, or <!-- not run: REASON -->"
    if block.language == "console" and not block.text.startswith("$ "):
        yield f"{block.place}: a console block begins with `$ ` and a command"
    if block.mark == "run" and not re.fullmatch(r"background|terminal|exit \d+", block.value):
        yield f"{block.place}: <!-- run: background -->, <!-- run: terminal --> or <!-- run: exit N -->, not {block.value!r}"
    if block.mark == "not run" and len(block.value.split()) < 3:
        yield f"{block.place}: the reason is too short: {block.value!r}"
    for named in re.findall(r"tests/[\w/]+\.py", block.value if block.mark == "not run" else ""):
        if not (ROOT / named).is_file():
            yield f"{block.place}: there is no {named}"
    if (
        block.language == "text"
        and block.mark != "file"
        and re.search(r"^(\$ |streamgauge )", block.text, re.MULTILINE)
    ):
        yield f"{block.place}: commands belong in a `sh` or `console` block"


def steps(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif line.startswith("> "):  # a continued command
            found[-1] = (f"{found[-1][0]}\n{line.removeprefix('> ')}", [])
        else:
            found[-1][1].append(line)
    return found


def agrees(expected: list[str], printed: str) -> bool:
    """Whether an output is the expected one; `...` stands for anything."""
    lines = [_pattern(line) for line in expected if line.strip()]
    shown = "".join(f"{_plain(line)}\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch("".join(lines), shown) is not None


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:[^\n]*\n)*"
    return r"[^\n]*".join(re.escape(part) for part in _plain(line).split("...")) + r"\n"


def _plain(line: str) -> str:
    """A line with one blank between its words, and # for each id and number."""
    return " ".join("#" if _ID.fullmatch(word) else _NUMBER.sub("#", word) for word in line.split())
