"""What every earlier version wrote is read: each folder v1, v2, ... of `making.py`, and what this version writes now.

docs/compatibility.md has the rules. A later version that changes what one of these means adds a line to a table below, with
the reason; nothing is taken out of the folders.
"""

import base64
import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import pytest
from scripts.make_contract_fixtures import main

from streamgauge.audit.runs import Runs
from streamgauge.core.assembly.assembler import PRODUCERS, Assembler
from streamgauge.core.assembly.state_codec import offset_of
from streamgauge.core.capture.bundles import decode_bundle
from streamgauge.core.record import Record as Made
from streamgauge.core.record import encode_record
from streamgauge.kafka.dead_letters import NotRetriableError, _from_message, message_of
from streamgauge.kafka.topics import Topics
from streamgauge.ledger import open_ledger
from streamgauge.metrics.prometheus import Metrics
from streamgauge.records import Record
from tests.contracts.making import FOLDER, PAGED, declared_metrics, formats, make, meant
from tests.metrics.pages import read_page
from tests.running import start_up, wait_for

pytestmark = pytest.mark.xdist_group("contracts")

SCHEMAS = FOLDER.parent.parent / "schemas"
WRITTEN = sorted(
    (one for one in FOLDER.iterdir() if re.fullmatch(r"v\d+", one.name)), key=lambda one: int(one.name[1:])
)

# Members of records that a later version makes otherwise from the same bundles: the path, and the fault that was mended.
_STREAM = "01000000-0000-7000-8000-0000000000"
_UNITS_WERE_LEFT_OUT, _REASONED_AT = (
    ("09", "0a", "0b", "0c"),
    ("06", "0f", "10", "12", "14", "16", "17", "18", "21", "2a"),
)
CHANGED_VALUES: dict[str, str] = {
    **{f".{_STREAM}{end}.usage.parts": "Cohere's billed units were left out" for end in _UNITS_WERE_LEFT_OUT},
    **{
        f".{_STREAM}{end}.timing.inter_token_latency_s": "hidden reasoning was counted as tokens of the visible output"
        for end in _REASONED_AT
    },
}
# Settings and metrics that have another name now, and metrics that were removed after their time of deprecation.
RENAMED_SETTINGS: dict[str, str] = {}
RENAMED_METRICS: dict[str, str] = {}
REMOVED_METRICS: dict[str, str] = {}


@pytest.fixture(scope="module")
def just_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this version writes."""
    folder = tmp_path_factory.mktemp("contracts") / "now"
    make(folder)
    return folder


@pytest.fixture(params=[*(one.name for one in WRITTEN), "now"])
def written(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue("just_made") if request.param == "now" else FOLDER / str(request.param)


def rows(file: Path) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, file.read_text().splitlines())


def value_of(row: dict[str, Any], name: str = "value") -> bytes:
    return base64.b64decode(row[name])


@cache
def log_of(folder: Path) -> list[bytes]:
    return [value_of(row) for row in rows(folder / "bundles.jsonl")]


def assembled(folder: Path, assembler: Assembler, first: int = 0) -> list[Made]:
    """The records of the bundles from offset `first` on."""
    found = []
    for offset, message in enumerate(log_of(folder)):
        if offset >= first:
            found += assembler.apply(offset, offset * 100, decode_bundle(message))
    return found


def by_id(records: list[Made]) -> dict[str, Any]:
    return {one.stream_id: json.loads(encode_record(one)) for one in records}


def lost(old: Any, new: Any, path: str = "") -> list[str]:
    """Where `new` lacks or contradicts what `old` has: names may be added, nothing else."""
    if path in CHANGED_VALUES:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            where
            for name, value in old.items()
            for where in (lost(value, new[name], f"{path}.{name}") if name in new else [f"{path}.{name}"])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [where for one, other in zip(old, new, strict=True) for where in lost(one, other, f"{path}[]")]
    return [] if old == new else [path]


def expected(folder: Path) -> dict[str, Any]:
    return {row["stream_id"]: row for row in rows(folder / "records.jsonl")}


def test_records_are_read_by_the_public_model_and_fit_their_schema(written: Path) -> None:
    schema = jsonschema.Draft202012Validator(json.loads((SCHEMAS / "record.v1.json").read_text()))
    lines = (written / "records.jsonl").read_text().splitlines()
    assert len(lines) > 40
    for line in lines:
        old = json.loads(line)
        assert lost(old, Record.model_validate_json(line).model_dump(mode="json")) == []
        schema.validate(old)


def test_bundles_give_their_records(written: Path) -> None:
    assembler = Assembler()
    assert lost(expected(written), by_id(assembled(written, assembler))) == []
    assert assembler.open_streams == 0


def test_a_worker_s_state_continues(written: Path) -> None:
    """Also if all bundles come once more: the state knows which of them it holds."""
    state = {row["key"]: value_of(row) for row in rows(written / "state.jsonl")}
    first = offset_of(state[PRODUCERS]) + 1
    assert 0 < first < len(log_of(written))
    for begin in (first, 0):
        assembler = Assembler()
        for key, value in state.items():
            assembler.load(key, value)
        assert assembler.open_streams > 20
        found = by_id(assembled(written, assembler, begin))
        assert lost({stream: one for stream, one in expected(written).items() if stream in found}, found) == []
        assert len(found) > 20
        assert assembler.open_streams == 0


@pytest.mark.slow
def test_a_data_directory_of_up_continues(written: Path, tmp_path: Path) -> None:
    """The real command on its spool, state, ledger, counters and key."""
    data = tmp_path / "data"
    shutil.copytree(written / "data", data)
    data.chmod(0o700)
    for file in data.iterdir():
        file.chmod(0o600)  # git keeps no modes
    with start_up({"sim": "http://127.0.0.1:1"}, data) as up:
        records = {one["stream_id"]: one for one in up.wait_for_records(len(expected(written)))}
        # A record is stored before the reads of its stream are removed (decision 4).
        wait_for(lambda: up.metrics()["streamgauge_tap_reads_waiting"] == 0, "an empty spool")
        assert up.stop() == 0
        assert "error" not in up.log
    assert lost(expected(written), records) == []
    assert (data / "key").read_bytes() == bytes(range(32))


def test_a_ledger_is_read_and_converted(written: Path, tmp_path: Path) -> None:
    shutil.copy(written / "ledger.sqlite", tmp_path)
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite") as ledger:
        lines = [json.loads(line) for line in ledger.query()]
        assert lost(list(rows(written / "ledger.jsonl")), lines) == []
        assert sum(one["cost"] is not None for one in lines) > 5
        total = sum(one["streams"] for one in map(json.loads, map(msgspec.json.encode, ledger.totals(["outcome"]))))
        assert total == len(lines)
        audits = json.loads(msgspec.json.encode(Runs(ledger).all()))
        assert lost(json.loads((written / "audits.json").read_text()), audits) == []


def test_dead_letters_are_read_and_can_be_sent_back(written: Path) -> None:
    names, found = Topics("streamgauge"), []
    for offset, row in enumerate(rows(written / "deadletters.jsonl")):
        key, value = (None if row[name] is None else value_of(row, name) for name in ("key", "value"))
        headers = [(name, text.encode()) for name, text in row["headers"].items()]
        found.append(_from_message(SimpleNamespace(offset=offset, timestamp=0, headers=headers, key=key, value=value)))
    frame, record, half = found
    assert (frame.stage, frame.error_class, frame.source_partition, frame.source_offset) == ("decode", "frame", 3, 41)
    assert message_of(names, frame)[:3] == ("streamgauge.segments", frame.value, None)
    assert decode_bundle(frame.value).segments
    assert message_of(names, record)[:3] == ("streamgauge.records", b"{}", b"id")
    with pytest.raises(NotRetriableError, match="truncated"):
        message_of(names, half)


def test_a_settings_file_means_the_same(written: Path) -> None:
    old = json.loads((written / "settings.json").read_text())
    assert len(old) > 50
    new = meant(written / "settings.toml")
    assert {RENAMED_SETTINGS.get(name, name): value for name, value in old.items()} == new


def test_metrics_have_their_names_types_and_labels(written: Path) -> None:
    now, old = declared_metrics(), json.loads((written / "metrics.json").read_text())
    for name in old.keys() - REMOVED_METRICS.keys():
        one = now[RENAMED_METRICS.get(name, name)]
        assert one["type"] == old[name]["type"], name
        assert set(old[name]["labels"]) <= set(one["labels"]), name


def test_a_page_has_the_series_that_it_had(written: Path) -> None:
    """As recording rules and dashboards of others read them: each name of a series, with its labels."""
    metrics = Metrics()
    for one in assembled(written, Assembler())[:PAGED]:
        metrics.observe(one)

    def series(page: bytes) -> set[tuple[str, frozenset[str]]]:
        samples = read_page(page).samples
        return {(name, frozenset(label for label, _ in labels)) for name, labels in samples}

    changed = (*RENAMED_METRICS, *REMOVED_METRICS)
    old = {
        one for one in series((written / "metrics.txt").read_bytes()) if not (changed and one[0].startswith(changed))
    }
    assert old - series(metrics.render()) == set()


def test_the_newest_folder_has_the_present_formats() -> None:
    """A change of a format needs a folder of its own."""
    newest = json.loads((WRITTEN[-1] / "formats.json").read_text())
    assert newest | {"streamgauge": ""} == formats() | {"streamgauge": ""}, (
        f"run: python -m scripts.make_contract_fixtures v{len(WRITTEN) + 1}"
    )
    assert [one.name for one in WRITTEN] == [f"v{number}" for number in range(1, len(WRITTEN) + 1)]


@pytest.mark.parametrize("arguments", [["v1"], [], ["v2", "v3"], ["2"], ["v0"], ["../v2"]])
def test_what_a_version_wrote_is_not_written_again(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    before = {one: one.stat().st_mtime_ns for one in FOLDER.rglob("*")}
    assert main(arguments) == 2
    assert capsys.readouterr().err
    assert {one: one.stat().st_mtime_ns for one in FOLDER.rglob("*")} == before


def test_a_loss_is_found() -> None:
    assert lost({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 0}) == []
    assert lost({"a": 1, "b": [1]}, {"b": [1, 2]}) == [".a", ".b"]
    assert lost({"a": None}, {"a": 0}) == [".a"]
