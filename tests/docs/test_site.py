"""The site: every page is built, no link leads nowhere, nothing comes from another origin."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scripts.build_site import INDEX, ROOT, Site, anchor, documents

# Groups of pages that the list of pages names by their own index.
BY_THEIR_INDEX = ("docs/decisions/", "docs/runbooks/")
# What a browser loads by itself, by the tag; a link is followed only by its reader.
LOADED = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}


class Parts(HTMLParser):
    """What a page loads, where its links lead, and its ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in LOADED:
            self.loaded.append(given.get(LOADED[tag], ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "id" in given:
            self.ids.append(given["id"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site = Site(documents())
    site.build(folder)
    assert site.problems == []
    return folder


def pages(folder: Path) -> dict[Path, Parts]:
    return {path: Parts(path.read_text()) for path in folder.rglob("*.html")}


def test_every_link_and_anchor_of_the_built_pages_is_there(built: Path) -> None:
    found = pages(built)
    assert len(found) > 100
    lost = []
    for path, page in found.items():
        for link in page.links + page.loaded:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, part = link.partition("#")
            place = (path.parent / target).resolve() if target else path
            if not place.is_file() or (part and part not in found[place].ids):
                lost.append((path.relative_to(built), link))
    assert lost == []


def test_a_page_loads_nothing_of_another_origin(built: Path) -> None:
    for path, page in pages(built).items():
        assert [one for one in page.loaded if re.match(r"([a-z]+:|//)", one)] == [], path
    for part in ("site.css", "search.js"):
        assert not re.search(
            r"https?:|//[a-z]|@import|url\(", (built / part).read_text().replace("// Finds", "").replace("// Words", "")
        )


def test_the_list_of_pages_names_every_page() -> None:
    index = (ROOT / INDEX).read_text()
    links = {(ROOT / INDEX).parent.joinpath(link).resolve() for link in re.findall(r"\]\(([^)#]+)", index)}
    wanted = {
        (ROOT / name).resolve()
        for name in documents()
        if name != INDEX and (not name.startswith(BY_THEIR_INDEX) or name.endswith("README.md"))
    }
    assert wanted - links == set()


def test_the_search_knows_each_section(built: Path) -> None:
    text = (built / "search-index.js").read_text()
    entries = json.loads(text.removeprefix("const SEARCH_INDEX = ").removesuffix(";\n"))
    assert {"u", "p", "h", "t"} == set(entries[0])
    found = pages(built)
    for entry in entries:
        name, _, part = entry["u"].partition("#")
        assert not part or part in found[built / name].ids
    assert any("truncated" in entry["t"] and entry["u"].startswith("docs/tutorial.html#") for entry in entries)


def test_a_comment_is_no_part_of_a_page(built: Path) -> None:
    assert "not run" not in (built / "docs" / "tutorial.html").read_text()


def test_anchors_are_those_of_github() -> None:
    assert anchor("`timing.gaps`") == "timinggaps"
    assert anchor("What is measured, and how") == "what-is-measured-and-how"
    assert anchor("7. Get an alert next time (1 minute)") == "7-get-an-alert-next-time-1-minute"


def test_what_leads_nowhere_is_said(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "code.py").write_text("")
    (tmp_path / "docs" / "README.md").write_text("# List\n\n## Pages\n\n- [one](one.md)\n")
    (tmp_path / "docs" / "one.md").write_text(
        "# One\n\n## Same\n\n## Same\n\n[a](#same-1) [b](#other) [c](two.md) [d](../code.py) [e](https://example.org)\n\n"
        "![f](https://example.org/f.png)\n"
    )
    site = Site(["docs/README.md", "docs/one.md"], tmp_path)
    site.build(tmp_path / "site")
    assert site.problems == [
        "docs/one.md: #other: no heading has this anchor",
        "docs/one.md: two.md: there is no such file",
        "docs/one.md: a picture of another origin: https://example.org/f.png",
    ]
    page = (tmp_path / "site" / "docs" / "one.html").read_text()
    assert 'title="code.py, in the repository"' in page
    assert '<a href="one.html" aria-current="page">one</a>' in page
