"""Hooks of the site (`mkdocs.yml`): its navigation is docs/README.md, and links to code become text."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
INDEX = "docs/README.md"
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\(([^)#:\s]+)[^)]*\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Takes the navigation from the sections of docs/README.md."""
    _, *sections = re.split(r"^## ", (ROOT / INDEX).read_text(encoding="utf-8"), flags=re.MULTILINE)
    config.nav = [{"Streamgauge": "README.md"}, {"All pages": INDEX}]
    for section in sections:
        links = _LINK.findall(section)
        config.nav.append({section.splitlines()[0]: [{title: _joined(INDEX, target)} for title, target in links]})
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leaves the text of links to code, which is in the repository only."""

    def text(link: re.Match[str]) -> str:
        name = _joined(page.file.src_uri, link[2])
        in_repository = (ROOT / name).exists() and not files.get_file_from_path(name)
        return link[1] if in_repository else link[0]

    return _LINK.sub(text, markdown)


def _joined(page: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
