"""The record's public schema agrees with what the core makes, and with the published schema."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from scripts.record_structs import DECLARED, MADE, structs, with_structs

from streamgauge.core import record as made
from streamgauge.records import Record, json_schema

SCHEMA = Path(__file__).parent.parent / "schemas" / "record.v1.json"
# The digest of the schema without its descriptions. A change of a name or type changes this line, in the same commit:
# additions only.
FROZEN = "1e6a849e9ef5066d9132194e1bbb09179f57e0c93712ee4eb6faf85ffe43fac6"


def test_published_schema_is_the_generated_one() -> None:
    assert SCHEMA.read_text() == json_schema(), "run: make generated"


def test_shape_of_the_schema_is_frozen() -> None:
    shape = json.dumps(without_descriptions(json.loads(SCHEMA.read_text())), indent=2)
    assert hashlib.sha256(shape.encode()).hexdigest() == FROZEN


def without_descriptions(value: Any) -> Any:
    if isinstance(value, list):
        return [without_descriptions(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without_descriptions(one) for key, one in value.items() if key != "description" or isinstance(one, dict)
    }


def described() -> list[tuple[str, dict[str, Any]]]:
    """Each field of the schema, as `Part.field` and its schema."""
    schema = json.loads(json_schema())
    parts = {"Record": schema, **schema["$defs"]}
    return [(f"{part}.{name}", field) for part, one in parts.items() for name, field in one["properties"].items()]


def values(field: dict[str, Any]) -> list[str]:
    return [value for one in (field, *field.get("anyOf", ()), field.get("items", {})) for value in one.get("enum", ())]


def test_every_field_has_a_description() -> None:
    fields = described()
    assert len(fields) > 100
    assert [name for name, field in fields if not field.get("description")] == []


def test_every_value_of_an_enumeration_is_explained() -> None:
    """By one of the fields that have these values."""
    explained = {
        tuple(known) for _, field in described() if (known := values(field)) and says(field["description"], known)
    }
    assert [name for name, field in described() if values(field) and tuple(values(field)) not in explained] == []


def says(description: str, known: list[str]) -> bool:
    return all(re.search(rf"`{value}`: \w", description) for value in known)


def test_structs_of_the_core_are_the_generated_ones() -> None:
    assert MADE.read_text() == with_structs(MADE.read_text(), DECLARED.read_text()), "run: make generated"


def test_a_struct_has_the_declared_fields_in_their_order_with_wider_types() -> None:
    declared = """
Kind = Literal["a", "b"]
class Part(BaseModel):
    x: int
class Error(Part):
    kind: Kind
    kinds: list[Kind] | None
    '''The field.'''
class Record(Part):
    version: Literal[1]
    names: dict[str, str] = Field(default_factory=dict)
    raw: dict[str, Any] | None = None
"""
    assert structs(declared).split("\n") == [
        "class Error(msgspec.Struct):",
        '    """The struct of `streamgauge.records.Error`, which describes the fields."""', "",
        "    kind: str", "    kinds: list[str] | None = None", "", "",
        "class Record(msgspec.Struct, kw_only=True):",
        '    """The struct of `streamgauge.records.Record`, which describes the fields."""', "",
        "    version: int", "    names: dict[str, str] = {}", "    raw: dict[str, object] | None = None", "",
    ]  # fmt: skip


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


def test_a_record_of_an_earlier_version_is_read(a_record: made.Record) -> None:
    """It has no attributes, rate limits, caller's span, upstream's host and reported cost; the schema accepts it, too."""
    earlier = msgspec.json.decode(made.encode_record(a_record))
    del earlier["attributes"], earlier["rate_limit"], earlier["parent_span_id"], earlier["usage"]["reported_cost"]
    del earlier["request"]["host"]
    record = Record.model_validate(earlier)
    assert (record.attributes, record.rate_limit, record.parent_span_id) == ({}, None, None)
    assert record.request is not None
    assert record.request.host is None
    assert record.usage.reported_cost is None
    jsonschema.Draft202012Validator(msgspec.json.decode(SCHEMA.read_bytes())).validate(earlier)
