"""Keys that are compared without a map, where an invoice calls them as we call our tenants."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamgauge.audit.keys import tenants_named
from tests.audit.world.bill import make_bill
from tests.audit.world.exports import EXPORTS
from tests.audit.world.records import write_ledger
from tests.audit.world.traffic import World, make_world
from tests.running import here

DAYS = ("2026-03-01", "2026-03-04")
USAGE = next(one for one in EXPORTS if one.name == "OpenAI usage alone")


@pytest.mark.parametrize(
    ("tenants", "files", "joined"),
    [
        ({"a", "b"}, [{("a",), ("b",)}], {"a": "a", "b": "b"}),
        ({"a"}, [{("key_1", "a"), ("key_2", "a")}, {("a",)}], {"key_1": "a", "key_2": "a", "a": "a"}),
        ({"a"}, [{("key_1", "a"), ("key_3", "c")}], {"key_1": "a"}),
        ({"a", "b"}, [{("a",)}], {}),  # no row is for b
        ({"a", None}, [{("a",)}], {}),  # a stream without a tenant may be of any key
        ({"a"}, [{("a",)}, {()}], {}),  # the costs have no keys
        ({"a", "b"}, [{("a", "b")}], {}),  # one row is for two tenants
        ({"a", "b"}, [{("x", "a"), ("x", "b")}], {}),  # one key is of two tenants
        ({"a"}, [{("key_1", "a"), ("key_3", "c")}, {("a",), ("c",)}], {}),  # usage by key, costs by project
        (set(), [{("a",)}], {}),
    ],
)
def test_every_tenant_has_to_be_named(
    tenants: set[str | None], files: list[set[tuple[str, ...]]], joined: dict[str, str]
) -> None:
    assert tenants_named(tenants, files) == joined


def audit(folder: Path, world: World, change: Callable[[str], str]) -> dict[str, Any]:
    """The result for a world whose invoice is changed as text."""
    write_ledger(folder / "ledger.sqlite", world.calls)
    (folder / "usage.json").write_text(change(USAGE.writers[0](make_bill(world))))
    done = here(
        "audit", "--data-dir", str(folder), "--invoice", str(folder / "usage.json"), "--from", DAYS[0], "--to", DAYS[1],
        "--output", "json",
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def with_an_unknown_project(text: str) -> str:
    """The projects are called as the tenants, and on each day there is another one with a row like the first one."""
    usage = json.loads(text.replace("proj_r", "river").replace("proj_d", "delta"))
    for bucket in usage["data"]:
        bucket["results"].append(bucket["results"][0] | {"project_id": "shadow", "api_key_id": "key_s"})
    return json.dumps(usage)


def test_an_unknown_project_beside_our_tenants_is_seen_by_no_tap(tmp_path: Path) -> None:
    """Its requests are not mixed with the aborted streams of another project."""
    world = make_world("openai", USAGE.models, DAYS[0], 3, 7)
    for day in ("2026-03-01", "2026-03-02", "2026-03-03"):
        aborted = next(call for call in world.calls if (call.day, call.model) == (day, USAGE.models[0]))
        world.change(aborted, usage="absent", outcome="client_abort", billed=False)
    result = audit(tmp_path, world, with_an_unknown_project)
    assert {line["key"] for line in result["lines"]} == {"river", "delta", "key_s"}
    assert [one["cause"] for one in result["causes"]] == ["coverage"]
    assert result["undecided"]["tokens"]["total"] == result["unexplained"]["tokens"]["total"] == 0
    assert "Keys of openai are compared without a map: its invoices name our tenants." in result["notes"]


def test_names_that_agree_nowhere_are_not_taken_for_tenants(tmp_path: Path) -> None:
    """The projects are called as the tenants, each as the other one: no cell agrees, so keys are not compared."""
    world = make_world("openai", USAGE.models, DAYS[0], 3, 7)
    result = audit(tmp_path, world, lambda text: text.replace("proj_r", "delta").replace("proj_d", "river"))
    assert {line["key"] for line in result["lines"]} == {None}
    assert result["agrees"]
    assert not any("without a map" in note for note in result["notes"])
