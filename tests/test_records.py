"""The record's public face agrees with what the core makes, and with the schema that is published."""

import hashlib
from pathlib import Path

import jsonschema
import msgspec
import pytest
from pydantic import BaseModel

from streamgauge.core import record as made
from streamgauge.records import Record, json_schema

SCHEMA = Path(__file__).parent.parent / "schemas" / "record.v1.json"
# A change of the published schema changes this line, in the same commit: additions only.
FROZEN = "5f97dafe9cd9d593008202238ab7d2b1a4eab797b4fa76abccceb076a24ca713"


def test_published_schema_is_frozen() -> None:
    assert hashlib.sha256(SCHEMA.read_bytes()).hexdigest() == FROZEN
    assert SCHEMA.read_text() == json_schema()


def names(model: type[BaseModel]) -> list[str]:
    return list(model.model_fields)


@pytest.mark.parametrize(
    "name",
    [
        "Record",
        "Request",
        "Error",
        "ToolCall",
        "Choice",
        "Gaps",
        "Timing",
        "ProviderTiming",
        "Usage",
        "Counts",
        "Integrity",
    ],
)
def test_core_and_public_face_have_the_same_names_in_the_same_order(name: str) -> None:
    import streamgauge.records as public

    assert names(getattr(public, name)) == [field.name for field in msgspec.structs.fields(getattr(made, name))]


def test_a_record_of_the_core_validates(a_record: made.Record) -> None:
    encoded = made.encode_record(a_record)
    record = Record.model_validate_json(encoded)
    jsonschema.Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(msgspec.json.decode(encoded))
    assert record.model_dump(mode="json") == msgspec.json.decode(encoded)


def test_a_reader_of_this_version_accepts_names_that_a_later_one_adds(a_record: made.Record) -> None:
    later = msgspec.json.decode(made.encode_record(a_record)) | {"added_later": 1}
    assert Record.model_validate(later).stream_id == a_record.stream_id


def test_a_record_without_a_name_is_refused(a_record: made.Record) -> None:
    lacking = msgspec.json.decode(made.encode_record(a_record))
    del lacking["outcome"]
    with pytest.raises(ValueError, match="outcome"):
        Record.model_validate(lacking)
