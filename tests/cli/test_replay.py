"""`streamgauge replay` on real files: one record for each, in order, and nothing else on stdout."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.cli.replay import Replaying
from streamgauge.settings.declarations import Settings
from tests.core.formats import aws_messages
from tests.running import command, here
from tests.taps.replay import recordings
from tests.taps.replay.recordings import Sample

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parent.parent / "vectors"
CHAT = (VECTORS / "openai-chat" / "happy.sse").read_bytes()
MESSAGES = (VECTORS / "anthropic-messages" / "happy.sse").read_bytes()

# These are random for each record of a recording.
OWN = ("stream_id", "tap_instance")


def replayed(*arguments: str, ask: Any = here) -> list[dict[str, Any]]:
    done = ask("replay", *arguments, "--output", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "b.sse").write_bytes(MESSAGES)
    (tmp_path / "in" / "c.sse").write_bytes(b"")
    (tmp_path / "in" / "deep" / "a.sse").write_bytes(CHAT)
    (tmp_path / "in" / "notes.txt").write_text("no recording")
    (tmp_path / "named.txt").write_bytes(CHAT)
    return tmp_path


def test_one_record_for_each_file_in_the_order_of_the_arguments(folder: Path) -> None:
    named, inside = str(folder / "named.txt"), str(folder / "in")
    records = replayed(named, inside, named, ask=command)
    assert [record["dialect"] for record in records] == [
        "openai-chat", "anthropic-messages", None, "openai-chat", "openai-chat",
    ]  # fmt: skip
    assert [record["outcome"] for record in records] == [
        "completed", "completed", "truncated", "completed", "completed",
    ]  # fmt: skip
    assert len({record["stream_id"] for record in records}) == len(records)


def test_json_is_one_document_of_the_same_records(folder: Path) -> None:
    named = str(folder / "named.txt")
    done = here("replay", named, named, "--output", "json")
    assert (done.returncode, done.stderr) == (0, "")
    [line] = replayed(named)
    assert [{**load, **dict.fromkeys(OWN)} for load in json.loads(done.stdout)] == [{**line, **dict.fromkeys(OWN)}] * 2


def test_the_same_recording_gives_the_same_record(folder: Path) -> None:
    first, second = replayed(*[str(folder / "named.txt")] * 2)
    assert {**first, **dict.fromkeys(OWN)} == {**second, **dict.fromkeys(OWN)}


def test_without_stamps_every_time_is_null(folder: Path) -> None:
    [record] = replayed(str(folder / "named.txt"))
    assert record["timing"]["first_token_s"] is record["timing"]["end_s"] is record["started_at"] is None
    assert record["counts"]["token_events"] > 0


def test_full_capture_says_so_and_counts_the_same(folder: Path) -> None:
    [masked] = replayed(str(folder / "named.txt"))
    [full] = replayed(str(folder / "named.txt"), "--capture", "full")
    assert (masked.pop("capture"), full.pop("capture")) == ("masked", "full")
    assert {**full, **dict.fromkeys(OWN)} == {**masked, **dict.fromkeys(OWN)}


def test_a_dialect_may_be_given(folder: Path) -> None:
    [record] = replayed(str(folder / "named.txt"), "--dialect", "openai-chat")
    assert record["dialect"] == "openai-chat"


def test_a_table(folder: Path) -> None:
    done = here("replay", str(folder / "in"))
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head.split()[:3] == ["started_at", "upstream", "dialect"]
    assert len(lines) == 3


def test_nothing_is_printed_if_one_of_the_files_does_not_exist(folder: Path) -> None:
    done = here("replay", str(folder / "named.txt"), str(folder / "gone.sse"), "--output", "jsonl")
    assert (done.returncode, done.stdout) == (2, "")


# --- recordings of exchanges ------------------------------------------------------------------------------------------

CHAT_SAMPLE, MESSAGES_SAMPLE = Sample(CHAT), Sample(MESSAGES, url="https://api.example.com/v1/messages")
HOME = Sample(b"<html>", url="https://example.com/", method="GET", headers=[("content-type", "text/html")])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "recorded"
    folder.mkdir()
    (folder / "a.har").write_bytes(recordings.har(CHAT_SAMPLE, HOME, MESSAGES_SAMPLE))
    (folder / "b.yaml").write_bytes(recordings.cassette_yaml(MESSAGES_SAMPLE))
    (folder / "c.flow").write_bytes(recordings.flows(CHAT_SAMPLE, MESSAGES_SAMPLE))
    (folder / "d.sse").write_bytes(CHAT)
    (folder / "compose.yaml").write_text("services: {}\n")
    return folder


def test_one_record_for_each_exchange_and_skipped_ones_are_reported(recorded: Path) -> None:
    done = here("replay", str(recorded), "--output", "jsonl")
    assert done.returncode == 0
    assert done.stderr == f"streamgauge replay: {recorded / 'a.har'}: 1 other exchange was ignored: not LLM traffic\n"
    records = [json.loads(line) for line in done.stdout.splitlines()]
    chat, messages = "openai-chat", "anthropic-messages"
    assert [record["dialect"] for record in records] == [chat, messages, messages, chat, messages, chat]
    assert {record["outcome"] for record in records} == {"completed"}
    assert {record["tap"] for record in records} == {"replay"}
    assert len({record["stream_id"] for record in records}) == 6
    assert "SECRET" not in done.stdout


def test_an_archive_without_an_llm_is_reported(tmp_path: Path) -> None:
    for name, samples, said in (
        ("others", [HOME, HOME], "it contains no LLM exchange (2 other exchanges were ignored)"),
        ("empty", [], "it contains no LLM exchange"),
        (
            "ticker",
            [Sample(b"data: 7\n\n", url="https://x/t")],
            "it contains no LLM exchange (1 other exchange was ignored)",
        ),
    ):
        path = tmp_path / name
        path.write_bytes(recordings.har(*samples))
        done = here("replay", str(path), "--output", "jsonl")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"streamgauge replay: {path}: {said}\n")


def test_a_broken_file_does_not_affect_the_others(recorded: Path) -> None:
    (recorded / "b.yaml").write_bytes((recorded / "b.yaml").read_bytes() + b"\n- [")
    (recorded / "c.flow").write_bytes((recorded / "c.flow").read_bytes()[:-20])
    done = here("replay", str(recorded), "--output", "jsonl")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 5
    _, yaml, flow = done.stderr.splitlines()
    assert yaml.startswith(f"streamgauge replay: {recorded / 'b.yaml'}: it is not valid YAML (line ")
    assert flow.startswith(f"streamgauge replay: {recorded / 'c.flow'}: flow 2, at byte ")


def test_a_broken_exchange_does_not_affect_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.har"
    path.write_bytes(recordings.archive({"request": {}}, recordings.entry(CHAT_SAMPLE)))
    done = here("replay", str(path), "--output", "jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert done.stderr == (
        f"streamgauge replay: {path}: 1 exchange that cannot be read has no record,"
        " the first at log.entries[0]: its request has no URL\n"
    )


def test_an_unreadable_file_ends_with_the_code_of_a_missing_resource(recorded: Path) -> None:
    (recorded / "a.har").unlink()
    (recorded / "a.har").symlink_to("/proc/self/mem")  # any process may open it, but reading it fails
    done = here("replay", str(recorded / "a.har"), str(recorded / "d.sse"), "--output", "jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (3, 1)
    assert done.stderr == f"streamgauge replay: {recorded / 'a.har'} cannot be read: Input/output error\n"


def test_an_existing_installation_key_is_used(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    own, other = {"STREAMGAUGE_DATA_DIR": str(tmp_path / "data")}, {"STREAMGAUGE_DATA_DIR": str(tmp_path / "none")}
    (tmp_path / "data" / "key").write_bytes(bytes(32))
    (tmp_path / "data" / "key").chmod(0o600)
    digests = []
    for environment in (own, own, other, other):
        done = here("replay", str(recorded / "c.flow"), "--output", "jsonl", environment=environment)
        digests.append({json.loads(line)["credential_id"] for line in done.stdout.splitlines()})
    assert digests[0] == digests[1]
    assert len(digests[0] | digests[2] | digests[3]) == 3
    assert not (tmp_path / "none").exists()


def test_a_key_of_another_user_is_not_used_and_the_digests_are_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that only its owner may enter ended each replay of other users."""

    def denied(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", denied)
    replaying = Replaying(Settings(data_dir=Path("/var/lib/streamgauge")), None)
    assert replaying.exit_code == 0
    assert capsys.readouterr().err == (
        "streamgauge replay: the digests of this run differ from those of the installation, because its key is not used: "
        "Permission denied\n"
    )


def test_headers_of_the_tenant_and_of_attributes_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "session.har"
    file.write_bytes(
        recordings.har(
            Sample(CHAT, request_headers=(("Authorization", "A"), ("X-Team", "search"), ("X-Feature", "chat")))
        )
    )
    options = ("--tenant-header", "X-Team", "--attribute", "feature=X-Feature", "--data-dir", str(tmp_path))
    [record] = replayed(str(file), *options)
    assert (record["tenant"], record["attributes"]) == ("search", {"feature": "chat"})


def test_a_source_must_be_given() -> None:
    done = here("replay")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to replay: name files or directories" in done.stderr


def test_a_broker_of_the_environment_is_ignored_if_files_are_given(recorded: Path) -> None:
    away = {"STREAMGAUGE_KAFKA": "127.0.0.1:1"}
    done = here("replay", str(recorded / "d.sse"), "--output", "jsonl", environment=away)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
    result = here("replay", environment=away)
    assert result.returncode == 3
    assert "no Kafka broker answers at 127.0.0.1:1" in result.stderr
    named = here("replay", str(recorded / "d.sse"), "--kafka", "127.0.0.1:1", "--output", "jsonl")
    assert (named.returncode, len(named.stdout.splitlines())) == (3, 1)


ERROR_BODY = b'{"error":{"type":"overloaded_error","message":"m"}}'
NOTHING = {
    "a.dat": b"\x7fELF\0\x01\n:\x02\ndata: \0",
    "a.py": b'"""A program."""\n\nimport sys\n\nprint("data: x")\n',
    "package.json": b'{"name": "x", "version": "1.0", "dependencies": {}}',
    "list.json": b"[1, 2, 3]",
    "a.toml": b'[package]\nname = "x"\n',
    "a.txt": b"hello\n",
    "records.jsonl": b'{"schema_version":1,"outcome":"completed"}\n{"schema_version":1}\n',
    "log.json": b'{"level":"info","message":"data: x"}\r\n\r\n{"level":"in',
    "binary.sse": b"\x7fELF\0\x01\x02",
}
# The dialect and the outcome of what is a recording, or the beginning of one.
SOMETHING = {
    "empty": (b"", None, "truncated"),
    "lines": (b"\r\n\n", None, "truncated"),
    "mcp": (b'data: {"jsonrpc":"2.0","id":1}\n\n', "other", "completed"),
    "half": (b'data: {"id":"chatcmpl', None, "truncated"),
    "ping": (b": ping\n\n", None, "truncated"),
    "late": (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n" + CHAT, "openai-chat", "completed"),
    "error.json": (ERROR_BODY, "openai-chat", "stream_error"),
    "cut.json": (ERROR_BODY[:20], None, "truncated"),
    "pretty.json": (b'{\n"error": {\n"type": "overloaded_error"', None, "truncated"),
    "page.html": (b"<html>502 Bad Gateway</html>", None, "truncated"),
    "damaged.sse": (b"dat", None, "truncated"),
    "odd.sse": (b'{"name": "x"}', None, "completed"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_file_that_holds_nothing_of_a_response_has_no_record(tmp_path: Path, name: str) -> None:
    file, whole = tmp_path / name, tmp_path / "whole"
    file.write_bytes(NOTHING[name])
    whole.write_bytes(CHAT)
    done = here("replay", str(file), str(whole), "--output", "jsonl")
    assert done.returncode == 1
    assert [json.loads(line)["dialect"] for line in done.stdout.splitlines()] == ["openai-chat"]
    [line] = done.stderr.splitlines()
    assert line.startswith(f"streamgauge replay: {file}: it is no recording: ")
    named = here("replay", str(file), "--dialect", "openai-chat", "--output", "jsonl")
    assert (named.returncode, len(named.stdout.splitlines())) == (0, 1)


@pytest.mark.parametrize("name", SOMETHING)
def test_every_body_of_a_response_has_a_record(tmp_path: Path, name: str) -> None:
    content, dialect, outcome = SOMETHING[name]
    (tmp_path / name).write_bytes(content)
    done = here("replay", str(tmp_path / name), "--output", "jsonl")
    assert done.returncode == 0
    [record] = map(json.loads, done.stdout.splitlines())
    assert (record["dialect"], record["outcome"]) == (dialect, outcome)


BEDROCK = aws_messages.event(
    "contentBlockDelta", b'{"delta":{"text":"Hi"},"contentBlockIndex":0}'
) + aws_messages.event("messageStop", b'{"stopReason":"end_turn"}')
OLLAMA = b"""{"model":"river-3","message":{"role":"assistant","content":"The"},"done":false}
{"model":"river-3","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}
"""
GEMINI = b'[{"candidates":[{"content":{"parts":[{"text":"The"}]}}]},{"candidates":[{"finishReason":"STOP"}]}]'


def test_a_directory_of_raw_bodies_in_each_framing(tmp_path: Path) -> None:
    bodies = {
        "a.ndjson": (OLLAMA, "ollama"),
        "b.json": (GEMINI, "gemini"),
        "c.bin": (BEDROCK, "bedrock-converse"),
        "d.bin": (base64.b64encode(BEDROCK), "bedrock-converse"),
        "e.bin": (CHAT, "openai-chat"),
    }
    for name, (body, _) in bodies.items():
        (tmp_path / name).write_bytes(body)
    (tmp_path / "package.json").write_text('{"name": "river"}')
    done = here("replay", str(tmp_path), "--output", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        (one["dialect"], one["outcome"], one["streaming"], one["counts"]["token_events"] > 0) for one in records
    ] == [(dialect, "completed", True, True) for _, dialect in bodies.values()]
    assert all(one["timing"]["first_token_s"] is None for one in records)

    (tmp_path / "f.bin").write_bytes(b"\0\1\2\3" * 9)
    (tmp_path / "g.ndjson").write_bytes(b'{"level":"info"}\n' * 3)
    done = here("replay", str(tmp_path), "--output", "jsonl")
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 5)
    assert [line.partition(": it is no recording: ")[0] for line in done.stderr.splitlines()] == [
        f"streamgauge replay: {tmp_path / name}" for name in ("f.bin", "g.ndjson")
    ]
