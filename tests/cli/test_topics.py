"""`streamgauge topics` against a real broker: what it prints and how it ends."""

import json
import uuid

import pytest

from tests.running import command, here

pytestmark = pytest.mark.kafka


def test_created_then_agreeing_then_differing(kafka: str) -> None:
    prefix = f"command-{uuid.uuid4().hex[:8]}"
    place = ("--kafka", kafka, "--topic-prefix", prefix)
    none = here("topics", "describe", *place, "--output", "json")
    assert (none.returncode, json.loads(none.stdout)) == (1, [])
    before = command("topics", "describe", *place)
    assert (before.returncode, before.stdout) == (1, "")
    assert before.stderr == f"there are no topics with the prefix {prefix}: run `streamgauge topics create`\n"
    made = command("topics", "create", *place, "--partitions", "4")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        f"created {prefix}.{name}" for name in ("segments", "records", "state", "deadletter")
    ]
    again = here("topics", "create", *place)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "all topics exist and have the expected settings\n"
    other = here("topics", "create", *place, "--partitions", "8")
    assert other.returncode == 1
    assert f"{prefix}.segments has 4 partitions, not 8" in other.stderr.splitlines()
    shown = here("topics", "describe", *place)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].split() == ["topic", "partitions", "replicas", "settings"]
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [
        [f"{prefix}.{name}", count, "1"] for name, count in
        (("segments", "4"), ("records", "4"), ("state", "4"), ("deadletter", "1"))
    ]  # fmt: skip
    assert "message.timestamp.type=LogAppendTime" in shown.stdout
    described = json.loads(here("topics", "describe", *place, "--output", "json").stdout)
    assert [(one["topic"], one["partitions"], one["replicas"]) for one in described] == [
        (f"{prefix}.{name}", count, 1) for name, count in
        (("segments", 4), ("records", 4), ("state", 4), ("deadletter", 1))
    ]  # fmt: skip
    assert described[0]["settings"]["message.timestamp.type"] == "LogAppendTime"
    lines = here("topics", "describe", *place, "--output", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == described
    agreeing = here("topics", "create", *place, "--output", "json")
    assert (agreeing.returncode, json.loads(agreeing.stdout)) == (0, {"created": [], "differences": []})
    differing = here("topics", "create", *place, "--partitions", "8", "--output", "json")
    assert differing.returncode == 1
    assert f"{prefix}.segments has 4 partitions, not 8" in json.loads(differing.stdout)["differences"]


def test_a_topic_has_as_many_replicas_as_requested(kafka: str) -> None:
    """A single broker can create one replica of each partition, and refuses two."""
    place = ("--kafka", kafka, "--topic-prefix", f"command-{uuid.uuid4().hex[:8]}")
    refused = here("topics", "create", *place, "--replicas", "2")
    assert refused.returncode == 3
    assert "InvalidReplicationFactor" in refused.stderr
    none = here("topics", "create", *place, "--replicas", "0")
    assert none.returncode == 2
    assert none.stderr.startswith("streamgauge topics: --replicas (STREAMGAUGE_REPLICAS): ")
    assert here("topics", "create", *place, "--replicas", "1").returncode == 0
