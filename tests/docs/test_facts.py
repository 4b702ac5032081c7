"""Each fact of the table "One place for each fact" in CONTRIBUTING.md is on one page, to which the others link."""

import re
from typing import NamedTuple

from tests.docs.blocks import ROOT

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# Pages of one line a term, histories, and pages that are made from the code.
NOT_CHECKED = (
    "docs/decisions/",
    "docs/lab/",
    "docs/architecture.md",
    "docs/glossary.md",
    "docs/reference/commands.md",
    "docs/reference/record.md",
    "docs/reference/settings.md",
)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]*)\)")
_ROW = re.compile(r"^\| (.+?) \| (`.+`) \| \[[^\]]+\]\((\S+)\) \|$", re.MULTILINE)


class Fact(NamedTuple):
    """A row of the table. `place`: a path in the repository, with the anchor of a section."""

    name: str
    words: list[str]
    place: str


def facts() -> list[Fact]:
    """The rows of the table."""
    section = CONTRIBUTING.read_text().partition("## One place for each fact")[2].partition("\n## ")[0]
    return [Fact(name, re.findall(r"`([^`]+)`", words), place) for name, words, place in _ROW.findall(section)]


def pages() -> dict[str, str]:
    """The pages that are checked: path in the repository -> text."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.glob("docs/**/*.md"))}
    kept = {name: text for name, text in found.items() if not name.startswith(NOT_CHECKED)}
    return {"README.md": (ROOT / "README.md").read_text(), **kept}


def links(name: str, text: str) -> set[str]:
    """Where the links of a page lead: paths in the repository, with their anchors."""
    found = set()
    for link in _LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent.joinpath(path).resolve() if path else ROOT / name
        if target.is_relative_to(ROOT):
            found.add(f"{target.relative_to(ROOT).as_posix()}#{anchor}")
    return found


def without_link(fact: Fact, shown: dict[str, str]) -> list[str]:
    """The pages that have a word of a fact, and neither are its place nor link to it."""
    missing = []
    for name, text in shown.items():
        has_word = any(word in _FENCE.sub("", text) for word in fact.words)
        if has_word and name != fact.place.partition("#")[0] and fact.place not in links(name, text):
            missing.append(name)
    return missing


def slug(title: str) -> str:
    """The anchor of a section, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def test_each_fact_has_one_place_to_which_other_pages_link() -> None:
    shown = pages()
    assert len(facts()) >= 10
    assert {fact.name: missing for fact in facts() if (missing := without_link(fact, shown))} == {}


def test_each_place_is_a_section_that_has_the_words() -> None:
    for fact in facts():
        path, _, anchor = fact.place.partition("#")
        text = (ROOT / path).read_text()
        assert anchor in {slug(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}, fact.name
        assert any(word in text for word in fact.words), fact.name


def test_a_page_that_repeats_a_fact_is_found() -> None:
    fact = Fact("usage", ["include_usage"], "docs/guides/usage.md#usage")
    repeats = {"docs/faq.md": "Set `include_usage`."}
    assert without_link(fact, repeats) == ["docs/faq.md"]
    assert without_link(fact, {"docs/faq.md": "Set `include_usage` ([why](guides/usage.md#cost))."}) == ["docs/faq.md"]
    assert without_link(fact, {"docs/faq.md": "Set `include_usage` ([why](guides/usage.md#usage))."}) == []
    assert without_link(fact, {"docs/guides/usage.md": "Set `include_usage`."}) == []
    assert without_link(fact, {"docs/faq.md": "```sh\ninclude_usage\n```\n"}) == []
