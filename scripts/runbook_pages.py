"""Writes the pages of docs/runbooks as HTML, which the admin port serves: `python -m scripts.runbook_pages [FOLDER]`.

A link to another runbook leads to its page; of a link to another document the path stays, as text.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks"
FOLDER = ROOT / "pipeline" / "streamgauge" / "live" / "runbooks"

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - Streamgauge</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/runbook.css">
</head>
<body>
<nav><a href="/">Streams</a> <a href="/runbooks/">All runbooks</a></nav>
<main>
{body}</main>
</body>
</html>
"""


def files() -> Mapping[str, str]:
    """The generated files: name -> HTML. README is the index."""
    return {f"{path.stem}.html": page(path) for path in sorted(RUNBOOKS.glob("*.md"))}


def page(path: Path) -> str:
    """The page of a file in docs/runbooks."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = list(_linked(markdown.parse(path.read_text(encoding="utf-8")), path.parent))
    title = "Runbooks" if path.stem == "README" else path.stem
    return _PAGE.format(title=escape(title), body=markdown.renderer.render(tokens, markdown.options, {}))


def _linked(tokens: Sequence[Token], folder: Path) -> Iterator[Token]:
    """The tokens with links that lead somewhere on the admin port."""
    outside: list[str] = []
    for token in tokens:
        if token.children is not None:
            token.children = list(_linked(token.children, folder))
        if token.type == "link_open":
            name, _, anchor = str(token.attrs["href"]).partition("#")
            target = (folder / name).resolve()
            outside.append("" if target.parent == RUNBOOKS else target.relative_to(ROOT).as_posix())
            if not outside[-1]:
                token.attrs["href"] = f"/runbooks/{target.stem}" + (f"#{anchor}" if anchor else "")
                yield token
        elif token.type == "link_close":
            path = outside.pop()
            yield token if not path else Token("text", "", 0, content=f" ({path})")
        else:
            yield token


def write(folder: Path) -> None:
    """Writes the pages, and removes those of alerts that are gone. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = files()
    for old in folder.glob("*.html"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
