"""An agent that does not read the tenant header of an application's tap logs this once, with the remedy."""

import msgspec
import pytest

from streamgauge.recorder.protocol import RequestStarted
from streamgauge.recorder.tenant_headers import MAX_WARNINGS, TenantHeaderCheck
from tests.taps.talk import opened


def stream(theirs: str | None, *headers: tuple[str, str], tap: str = "httpx") -> RequestStarted:
    return msgspec.structs.replace(opened("/v1/messages", *headers, tap=tap), tenant_header=theirs)


def said(ours: str | None, *streams: RequestStarted) -> list[str]:
    sentences: list[str] = []
    check = TenantHeaderCheck(ours, sentences.append)
    for one in streams:
        check.check(one)
    return sentences


@pytest.mark.parametrize("tap", ["httpx", "asgi"])
def test_an_agent_without_the_header_names_the_flag_once(tap: str) -> None:
    [sentence] = said(None, *[stream("x-tenant", ("x-tenant", "blue"), tap=tap)] * 5)
    assert f"({tap}) reads tenants from the header x-tenant" in sentence
    assert sentence.endswith("Start the agent with --tenant-header x-tenant")
    assert "blue" not in sentence


def test_two_different_headers_are_both_named() -> None:
    [sentence] = said("X-Team", stream("x-tenant"), stream("x-tenant"))
    assert "from the header x-tenant, but this agent reads them from x-team" in sentence
    cure = "Set tenant_header='x-team' in the tap, or start the agent with --tenant-header x-tenant"
    assert sentence.endswith(cure)


def test_a_tap_without_its_agents_header_is_advised_to_set_it() -> None:
    [sentence] = said("x-team", stream(None), stream(None))
    assert "has no tenant header, but this agent reads tenants from x-team" in sentence
    assert sentence.endswith("STREAMGAUGE_TENANT_HEADER=x-team in the environment of the application")


@pytest.mark.parametrize(
    ("ours", "one"),
    [
        ("X-Team", stream("x-team")),
        (None, stream(None)),
        ("x-team", stream(None, ("x-team", "red"))),  # a tap of a version that does not say its header
        ("x-team", stream(None, tap="proxy")),  # a tap on the wire has the setting of its recorder
        ("x-team", stream(None, tap="packets")),
    ],
)
def test_equal_settings_are_not_logged(ours: str | None, one: RequestStarted) -> None:
    assert said(ours, one) == []


def test_each_header_is_logged_once_up_to_the_limit() -> None:
    streams = [stream(f"x-{number}") for number in range(3 * MAX_WARNINGS)]
    assert len(said(None, *streams, *streams)) == MAX_WARNINGS
    assert len(said(None, *streams[:3], *streams[:3])) == 3


def test_an_invalid_header_name_is_not_quoted() -> None:
    [sentence] = said(None, stream("secret value\n"))
    assert "secret" not in sentence
