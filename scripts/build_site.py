"""Builds a site of static pages from the documents: `python -m scripts.build_site [FOLDER]`, by default build/site.

Pages are those that GitHub shows: README.md, docs/ and the metrics. `docs/README.md` is the list of pages, and stands beside
each of them. A page loads nothing from another origin, and the search works without a server: its index is a script. A link
or an anchor that leads nowhere is an error: each is printed, and the exit code is 1.
"""

import html
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[1]
PARTS = Path(__file__).parent / "site"
INDEX = "docs/README.md"
# Parts of a line with text.
_SHOWN = {"text", "code_inline", "softbreak", "hardbreak"}
# Files that a page may link to and that are no pages: they are copied.
COPIED = {".json", ".yml", ".toml", ".png", ".svg", ""}


@dataclass
class Page:
    """A document. `name`: its path in the repository; `anchors`: of its headings."""

    name: str
    tokens: list[Token]
    title: str = ""
    anchors: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Its path on the site."""
        return address(self.name)


def address(name: str) -> str:
    """The path on the site of a document of the repository."""
    folder, file = posixpath.split(name)
    return posixpath.join(folder, "index.html" if file == "README.md" else file.removesuffix(".md") + ".html")


def documents() -> list[str]:
    """The documents of the site, by their paths in the repository."""
    found = [*ROOT.glob("docs/**/*.md"), ROOT / "dashboards" / "METRICS.md"]
    named = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *sorted(str(path.relative_to(ROOT)) for path in found)]
    return [name for name in named if (ROOT / name).is_file()]


class Site:
    """The pages, and what is wrong with them (`problems`, one sentence each). `root`: the repository."""

    def __init__(self, names: Sequence[str], root: Path = ROOT) -> None:
        self._root = root
        self._markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.pages = {name: self._read(name) for name in names}
        self.problems: list[str] = []
        self._files: set[str] = set()

    def build(self, folder: Path) -> None:
        """Writes the site. `problems` is complete afterwards. Raises OSError."""
        shutil.rmtree(folder, ignore_errors=True)
        for page in self.pages.values():
            place = folder / page.address
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._page(page), encoding="utf-8")
        for name in sorted(self._files):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._root / name, folder / name)
        for part in ("site.css", "search.js"):
            shutil.copyfile(PARTS / part, folder / part)
        entries = [entry for page in self.pages.values() for entry in _sections(page)]
        index = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
        (folder / "search-index.js").write_text(f"const SEARCH_INDEX = {index};\n", encoding="utf-8")

    def _read(self, name: str) -> Page:
        page = Page(name, self._markdown.parse((self._root / name).read_text(encoding="utf-8")))
        seen: dict[str, int] = {}
        for opening, inline in pairwise(page.tokens):
            if opening.type != "heading_open":
                continue
            text = _text(inline)
            slug = anchor(text)
            seen[slug] = seen.get(slug, -1) + 1
            opening.attrSet("id", f"{slug}-{seen[slug]}" if seen[slug] else slug)
            page.anchors[str(opening.attrGet("id"))] = text
            page.title = page.title or text
        return page

    def _page(self, page: Page) -> str:
        """The whole HTML of a page."""
        for token in _inline(page.tokens):
            if token.type in ("link_open", "image"):
                self._lead(page, token)
        body = self._markdown.renderer.render(_without_comments(page.tokens), self._markdown.options, {})
        body = body.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
        home = posixpath.relpath(".", posixpath.dirname(page.address) or ".")
        named = {"title": html.escape(page.title), "home": home, "list": self._list(page), "body": body}
        return re.sub(
            r"\{\{(\w+)\}\}", lambda found: named[found[1]], (PARTS / "page.html").read_text(encoding="utf-8")
        )

    def _list(self, page: Page) -> str:
        """The list of pages as it stands beside a page: the sections of the index, with the links as seen from here."""
        tokens = self._markdown.parse((self._root / INDEX).read_text(encoding="utf-8"))
        shown: list[str] = []
        for opening, inline in pairwise(tokens):
            if opening.type == "heading_open" and opening.tag == "h2":
                shown.append(f"<h2>{html.escape(_text(inline))}</h2>")
            elif inline.type == "inline" and shown:
                shown += self._entries(page, inline.children or [])
        return "\n".join(shown)

    def _entries(self, page: Page, children: Sequence[Token]) -> Iterator[str]:
        for opening, text in pairwise(children):
            target = str(opening.attrGet("href") or "") if opening.type == "link_open" else ""
            name = _join(INDEX, target)
            if name in self.pages:
                here = ' aria-current="page"' if name == page.name else ""
                to = posixpath.relpath(address(name), posixpath.dirname(page.address) or ".")
                yield f'<a href="{to}"{here}>{html.escape(text.content)}</a>'

    def _lead(self, page: Page, token: Token) -> None:
        """Makes a link of a document a link of the site; notes one that leads nowhere."""
        attribute = "src" if token.type == "image" else "href"
        target = unquote(str(token.attrGet(attribute) or ""))
        if re.match(r"[a-z]+:", target):
            if token.type == "image":
                self.problems.append(f"{page.name}: a picture of another origin: {target}")
            return
        path, _, part = target.partition("#")
        name = _join(page.name, path) if path else page.name
        folder = name if name in self.pages else f"{name.rstrip('/')}/README.md"
        if folder in self.pages:
            if part and part not in self.pages[folder].anchors:
                self.problems.append(f"{page.name}: {target}: no heading has this anchor")
            to = posixpath.relpath(address(folder), posixpath.dirname(page.address) or ".")
            token.attrSet(attribute, to + (f"#{part}" if part else ""))
        elif not (self._root / name).exists():
            self.problems.append(f"{page.name}: {target}: there is no such file")
        elif (self._root / name).is_file() and Path(name).suffix in COPIED:
            self._files.add(name)
            token.attrSet(attribute, posixpath.relpath(name, posixpath.dirname(page.address) or "."))
        else:  # code, and folders of code: they are in the repository only
            token.attrs.pop(attribute, None)
            token.attrSet("title", f"{name}, in the repository")


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _join(page: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def _text(inline: Token) -> str:
    parts = (
        " " if child.type.endswith("break") else child.content
        for child in inline.children or []
        if child.type in _SHOWN
    )
    return "".join(parts)


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield from token.children or []


def _without_comments(tokens: Sequence[Token]) -> list[Token]:
    """Leaves out comments: they declare how a block is tested, and are not for readers."""
    return [token for token in tokens if not (token.type == "html_block" and token.content.startswith("<!--"))]


def _sections(page: Page) -> Iterator[dict[str, str]]:
    """Each section of a page for the search: its address (`u`), page (`p`), heading (`h`) and text (`t`)."""
    at, heading, texts = "", page.title, list[str]()

    def section() -> dict[str, str]:
        return {"u": page.address + at, "p": page.title, "h": heading, "t": " ".join(texts)}

    for before, token in zip([None, *page.tokens], page.tokens, strict=False):
        if token.type == "inline" and before and before.type == "heading_open":
            if texts:
                yield section()
            at, heading, texts = f"#{before.attrGet('id')}", _text(token), []
        elif token.type == "inline":
            texts.append(_text(token))
        elif token.type in ("fence", "code_block"):
            texts.append(token.content)
    yield section()


def main() -> int:
    """Builds the site; the exit code."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/site")
    site = Site(documents())
    site.build(folder)
    for problem in site.problems:
        sys.stderr.write(f"{problem}\n")
    sys.stdout.write(f"{len(site.pages)} pages in {folder}/index.html\n")
    return 1 if site.problems else 0


if __name__ == "__main__":
    sys.exit(main())
