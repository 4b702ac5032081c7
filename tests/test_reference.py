"""The pages of docs/reference are what the code generates."""

from pathlib import Path

import pytest
from scripts import generate_reference

from streamgauge.kafka.topic_settings import CONTENTS
from streamgauge.records import Record

FOLDER = Path(__file__).parent.parent / "docs" / "reference"


@pytest.mark.parametrize("name", sorted(generate_reference.files()))
def test_page_is_the_generated_one(name: str) -> None:
    assert (FOLDER / name).read_text() == generate_reference.files()[name], "run: make generated"


def test_every_field_and_topic_is_on_its_page() -> None:
    pages = generate_reference.files()
    assert [name for name in Record.model_fields if f"\n| `{name}` |" not in pages["record.md"]] == []
    assert [name for name in CONTENTS if f"\n## `streamgauge.{name}`" not in pages["topics.md"]] == []


def test_pages_are_written(tmp_path: Path) -> None:
    generate_reference.write(tmp_path / "new")
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == generate_reference.files()
