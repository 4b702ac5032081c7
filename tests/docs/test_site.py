"""The site: it shows what GitHub shows, no link leads nowhere, nothing is loaded from another host, the search works."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.live.browsing import NoBrowserError, started_browser

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
# Groups of pages that the list of pages names by their own index.
BY_THEIR_INDEX = ("docs/decisions/", "docs/runbooks/")
# What a browser loads by itself, by the tag; a link is followed only by its reader.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# What a page is made of. The two parsers differ only in the paragraphs within the items of a list.
SHOWN = {"h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "th", "td", "pre", "img", "code", "strong", "em"}


class Parts(HTMLParser):
    """How often a page has each tag, what it loads, and where its links lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.loaded: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SHOWN:
            self.tags[tag] += 1
        attributes = dict(attrs)
        # The address of the page itself, for search engines.
        if tag in LOADED and attributes.get("rel") != "canonical":
            self.loaded.append(attributes.get(LOADED[tag]) or "")


def documents() -> list[str]:
    """The documents that the site has, by their paths in the repository."""
    folder = ROOT / "scripts" / "site"
    pages = [folder / "README.md", folder / "CONTRIBUTING.md", folder / "CHANGELOG.md", folder / "SECURITY.md"]
    return [
        str(path.relative_to(folder))
        for path in [*pages, folder / "dashboards" / "METRICS.md", *sorted((folder / "docs").glob("**/*.md"))]
    ]


def build(root: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-f",
        str(root / "scripts" / "mkdocs.yml"),
        "-d",
        str(folder),
    ]
    return subprocess.run(
        command, check=False, text=True, capture_output=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def page_of(site: Path, name: str) -> str:
    path, file = os.path.split(name)
    return (site / path / ("index.html" if file == "README.md" else file.replace(".md", ".html"))).read_text()


def test_each_document_is_shown_as_on_github(site: Path) -> None:
    github = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    assert len(documents()) > 100
    for name in documents():
        page = page_of(site, name)
        article = page[page.index("<article") : page.index("</article>")]
        assert Parts(article).tags == Parts(github.render((ROOT / name).read_text())).tags, name


def test_a_page_loads_nothing_of_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = Parts(path.read_text()).loaded
        assert loaded
        assert [address for address in loaded if re.match(r"([a-z]+:|//)", address)] == [], path


def test_the_list_of_pages_names_every_page() -> None:
    links = {INDEX.parent.joinpath(link).resolve() for link in re.findall(r"\]\(([^)#]+)", INDEX.read_text())}
    for name in documents():
        by_index = name.startswith(BY_THEIR_INDEX) and not name.endswith("README.md")
        assert by_index or (ROOT / name).resolve() in {*links, INDEX}, name


@pytest.mark.parametrize("link", ["[lost](nothing.md)", "[lost](tutorial.md#nothing)", "![lost](images/nothing.png)"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, link: str) -> None:
    for folder in ("docs", "dashboards", "schemas"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", symlinks=True)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, tmp_path)
    with (tmp_path / "docs" / "faq.md").open("a") as faq:
        faq.write(f"\n{link}\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode == 1
    assert "docs/faq.md" in built.stderr
    assert "nothing" in built.stderr


@pytest.fixture(scope="module")
def page(site: Path) -> "Iterator[Any]":
    try:
        with started_browser() as browser:
            yield browser.new_page()
    except NoBrowserError as why:
        pytest.skip(f"no browser: {why}")


def test_the_search_works_in_a_page_that_is_opened_as_a_file(site: Path, page: Any) -> None:
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "docs" / "tutorial.html").as_uri())
    page.click("input[name=query]")
    page.keyboard.type("stall seconds", delay=20)
    page.locator(".md-search-result__item a", has_text="Gaps, stalls, and the time per token").click()
    page.wait_for_url("**/measuring.html*")
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
