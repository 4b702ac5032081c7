"""The schema of the result is published, frozen, and true."""

import hashlib
import json
from pathlib import Path

from streamgauge.audit.result import CAUSES, json_schema
from tests.test_records import without_descriptions

SCHEMA = Path(__file__).parent.parent.parent / "schemas" / "audit.v1.json"
# The digest of the schema without its descriptions. A change of a name or type changes this line, in the same commit:
# additions only.
FROZEN = "aec4cfcce2c6c4bdee7fa307fe9393f03fa2848971b133f4804c9020c57978f5"


def test_published_schema_is_the_generated_one() -> None:
    assert SCHEMA.read_text() == json_schema(), "run: make generated"


def test_shape_of_the_schema_is_frozen() -> None:
    shape = json.dumps(without_descriptions(json.loads(SCHEMA.read_text())), indent=2)
    assert hashlib.sha256(shape.encode()).hexdigest() == FROZEN


def test_the_names_are_those_of_the_contract() -> None:
    parts = json.loads(json_schema())["$defs"]
    names = {name: list(part["properties"]) for name, part in parts.items()}
    assert names["Result"] == [
        "period",
        "agrees",
        "tolerance",
        "coverage",
        "causes",
        "lines",
        "unexplained",
        "findings",
        "undecided",
        "verdicts",
        "totals",
        "accepted",
        "notes",
        "provenance",
        "uncovered_days",
    ]
    assert names["Days"] == ["from", "to", "timezone"]
    assert names["CauseTotal"] == ["cause", "tokens", "usd", "streams"]
    assert names["TokenCounts"] == ["input_uncached", "input_cached", "input_cache_write", "output", "total"]
    assert names["Line"] == [
        "day", "provider", "model", "key", "tier", "ours", "theirs", "difference", "explanations", "unexplained",
        "undecided", "alternatives",
    ]  # fmt: skip
    assert names["LineExplanation"] == ["cause", "tokens", "usd", "streams", "rates", "labels"]
    assert "rates" not in parts["LineExplanation"]["required"]
    assert len(CAUSES) == 25


def test_every_part_and_every_plain_field_is_described() -> None:
    parts = json.loads(json_schema())["$defs"]
    assert [name for name, part in parts.items() if not part.get("description")] == []
    fields = [(name, key, field) for name, part in parts.items() for key, field in part["properties"].items()]
    plain = [(name, key) for name, key, field in fields if "type" in field and field["type"] not in ("array", "object")]
    assert [(name, key) for name, key, field in fields if (name, key) in plain and not field.get("description")] == []
