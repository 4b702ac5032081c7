"""`streamgauge topics` against a real broker: what it prints and how it ends."""

import uuid

import pytest

from tests.running import command

pytestmark = pytest.mark.kafka


def test_created_then_agreeing_then_differing(kafka: str) -> None:
    prefix = f"command-{uuid.uuid4().hex[:8]}"
    place = ("--kafka", kafka, "--topic-prefix", prefix)
    before = command("topics", "describe", *place)
    assert (before.returncode, before.stdout) == (1, "")
    assert before.stderr == f"there are no topics with the prefix {prefix}: run `streamgauge topics create`\n"
    made = command("topics", "create", *place, "--partitions", "4")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.splitlines() == [
        f"created {prefix}.{name}" for name in ("segments", "records", "state", "deadletter")
    ]
    again = command("topics", "create", *place)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "all topics exist and have the expected settings\n"
    other = command("topics", "create", *place, "--partitions", "8")
    assert other.returncode == 1
    assert f"{prefix}.segments has 4 partitions, not 8" in other.stderr.splitlines()
    shown = command("topics", "describe", *place)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].split() == ["topic", "partitions", "replicas", "settings"]
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [
        [f"{prefix}.{name}", count, "1"] for name, count in
        (("segments", "4"), ("records", "4"), ("state", "4"), ("deadletter", "1"))
    ]  # fmt: skip
    assert "message.timestamp.type=LogAppendTime" in shown.stdout


def test_replicas_are_as_many_as_are_asked_for(kafka: str) -> None:
    """The broker is alone: it can make one of each partition, and refuses two."""
    place = ("--kafka", kafka, "--topic-prefix", f"command-{uuid.uuid4().hex[:8]}")
    refused = command("topics", "create", *place, "--replicas", "2")
    assert refused.returncode == 3
    assert "InvalidReplicationFactor" in refused.stderr
    none = command("topics", "create", *place, "--replicas", "0")
    assert none.returncode == 2
    assert none.stderr.startswith("streamgauge topics: --replicas (STREAMGAUGE_REPLICAS): ")
    assert command("topics", "create", *place, "--replicas", "1").returncode == 0
