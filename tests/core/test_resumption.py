"""Which stream a resumed record continues: each rule alone, and all rules against a search through all records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.core.resumption import Streams


@dataclass(frozen=True)
class Part:
    """The fields of a record that the rules read."""

    name: str
    upstream: str | None = "nimbus"
    credential_id: str | None = "key"
    request_digest: str | None = None
    response_id: str | None = None
    last_event_id: str | None = None
    resumed_from: str | None = None
    endpoint: str | None = None
    outcome: str = "completed"


def stored(name: str, response: str = "resp_1", **changes: Any) -> Part:
    """A resumed stream of Responses: GET /responses/{id}?starting_after=4."""
    return Part(name, **{"resumed_from": "4", "response_id": response, **changes})


def again(name: str, position: str, **changes: Any) -> Part:
    """A resumed stream by Last-Event-ID: the same request once more."""
    return Part(name, **{"resumed_from": position, "request_digest": "digest", **changes})


def cut(name: str, **changes: Any) -> Part:
    """A stream that broke, with the same request as `again`."""
    return Part(name, **{"request_digest": "digest", "last_event_id": "17", "outcome": "truncated", **changes})


def streams(parts: Sequence[Part]) -> list[list[str]]:
    """The names of the records of each stream."""
    known: Streams[list[str]] = Streams(broken={}, completed={})
    found: list[list[str]] = []
    for part in parts:
        stream = known.continued_by(part)
        if stream is None:
            found.append(stream := [])
        stream.append(part.name)
        known.add(part, stream)
    return found


def joined(*parts: Part) -> list[str]:
    """The names of the records of each stream with more than one record."""
    return [name for stream in streams(parts) if len(stream) > 1 for name in stream]


@pytest.mark.parametrize("position", ["4", "evt_4"])
@pytest.mark.parametrize("last_event_id", [None, "4", "evt_4"])
def test_two_stored_responses_read_from_the_same_position_are_two_streams(
    position: str, last_event_id: str | None
) -> None:
    known = {"resumed_from": position, "last_event_id": last_event_id}
    one, two = (Part(name, response_id=name, outcome="truncated", last_event_id=last_event_id) for name in "ab")
    legs = (stored(f"leg {name}", name, **known) for name in "ab")
    assert joined(one, two, *legs) == ["a", "leg a", "b", "leg b"]
    assert joined(one, stored("x", "resp_x", **known), stored("y", "resp_y", **known)) == []


def test_a_position_is_not_a_response_id() -> None:
    origin = Part("origin", response_id="4", outcome="truncated")
    assert joined(origin, stored("stored", "resp_1"), again("again", "4", request_digest=None)) == []


def test_a_stored_response_read_from_its_start_is_the_same_stream() -> None:
    origin = Part("origin", request_digest="digest", response_id="resp_1", last_event_id="9")
    assert joined(origin, stored("again", resumed_from="start"), stored("and again", resumed_from="start")) == [
        "origin",
        "again",
        "and again",
    ]
    assert joined(origin, stored("other", "resp_2", resumed_from="start")) == []


def test_the_start_is_not_an_event_id() -> None:
    other = cut("other", last_event_id="start", request_digest=None)
    assert joined(other, again("leg", "start", request_digest=None)) == []


@pytest.mark.parametrize("position", ["3", "17", "evt_3"])
def test_a_client_may_have_received_less_than_the_tap(position: str) -> None:
    assert "leg" in joined(cut("origin"), again("leg", position))


@pytest.mark.parametrize("position", ["18", "018", "9" * 5000])
def test_a_position_that_a_stream_never_reached_belongs_to_another_stream(position: str) -> None:
    assert joined(cut("origin"), again("leg", position)) == []


@pytest.mark.parametrize("position", ["0", "9", "017", "0000"])
def test_numbers_are_compared_as_numbers(position: str) -> None:
    assert joined(cut("origin"), again("leg", position)) == ["origin", "leg"]


def test_of_two_equal_requests_the_position_selects_the_one_with_that_event() -> None:
    first, second = cut("first", last_event_id="17"), cut("second", last_event_id="23")
    assert joined(first, second, again("leg", "17")) == ["first", "leg"]
    assert joined(first, second, again("leg", "23")) == ["second", "leg"]
    assert joined(first, second, again("leg", "5")) == ["second", "leg"], "the latest stream"


def test_of_two_equal_requests_with_one_response_id_the_position_decides() -> None:
    first, second = cut("first", response_id="chat-1"), cut("second", response_id="chat-1", last_event_id="23")
    assert joined(first, second, again("leg", "17", response_id="chat-1")) == ["first", "leg"]


def test_of_two_with_one_response_id_the_request_decides() -> None:
    mine, other = cut("mine", response_id="chat-1"), cut("other", response_id="chat-1", request_digest="other")
    assert joined(mine, other, again("leg", "5", response_id="chat-1")) == ["mine", "leg"]


def test_of_two_completed_streams_the_later_is_continued() -> None:
    first, second = cut("first", outcome="completed"), cut("second", outcome="completed")
    assert joined(first, second, again("leg", "5")) == ["second", "leg"]


def test_a_response_id_distinguishes_equal_requests() -> None:
    first, second = cut("first", response_id="msg_1"), cut("second", response_id="msg_2")
    assert joined(first, second, again("leg", "17", response_id="msg_1")) == ["first", "leg"]


def test_a_broken_stream_is_continued_rather_than_a_completed_one() -> None:
    parts = cut("broke"), cut("done", outcome="completed"), again("leg", "17")
    assert joined(*parts) == ["broke", "leg"]


def test_a_request_with_another_body_is_matched_by_the_response_id() -> None:
    parts = cut("origin", response_id="msg_1"), again("leg", "17", request_digest="other", response_id="msg_1")
    assert joined(*parts) == ["origin", "leg"]


@pytest.mark.parametrize("position", ["17", "evt_17"])
def test_another_response_id_is_another_stream(position: str) -> None:
    other = cut("other", response_id="msg_1", last_event_id=position)
    assert joined(other, again("leg", position, response_id="msg_2")) == []
    assert joined(other, again("leg", position, response_id="msg_2", request_digest=None)) == []
    assert joined(other, again("leg", position, response_id="masked")) == ["other", "leg"]


def test_without_a_body_the_event_id_identifies_the_stream() -> None:
    origin = cut("origin", last_event_id="1720000000:8")
    assert joined(origin, again("leg", "1720000000:8", request_digest=None)) == ["origin", "leg"]


@pytest.mark.parametrize("digest", [None, "digest"])
def test_without_a_body_a_number_identifies_no_stream(digest: str | None) -> None:
    origin = cut("origin", request_digest=digest)
    assert joined(origin, *(again(name, "17", request_digest=None) for name in ("one", "two"))) == []


@pytest.mark.parametrize(
    "other",
    [
        {"upstream": "other"},
        {"upstream": None},
        {"credential_id": "other"},
        {"credential_id": None},
        {"request_digest": "other"},
        {"last_event_id": None},
    ],
)
def test_a_resumed_record_of_another_upstream_or_credential_counts_by_itself(other: dict[str, Any]) -> None:
    assert joined(cut("origin", **other), again("leg", "17")) == []


def test_masked_values_identify_nothing() -> None:
    origin = Part("origin", response_id="masked", last_event_id="masked", request_digest="digest")
    leg = Part("leg", resumed_from="masked", response_id="masked")
    assert joined(origin, leg) == []


def test_an_origin_continues_nothing_even_with_equal_ids() -> None:
    same = {"request_digest": "digest", "response_id": "chat-1", "last_event_id": "evt_1"}
    assert joined(Part("one", outcome="truncated", **same), Part("two", **same)) == []


def test_a_resumed_record_belongs_to_the_stream_of_the_record_that_it_continues() -> None:
    first = again("first", "17", last_event_id="evt_40", outcome="truncated")
    assert joined(cut("origin"), first, again("second", "evt_40")) == ["origin", "first", "second"]


def test_resumed_records_of_an_unknown_origin_are_one_stream() -> None:
    assert joined(stored("a"), stored("b"), Part("later", response_id="resp_1")) == ["a", "b"]


# --- all rules, against a search through everything that came before ------------------------------------------------------


def same(one: str | None, other: str | None) -> bool:
    return one is not None and one == other != "masked"


def differ(one: str | None, other: str | None) -> bool:
    return one != other and not {None, "masked"} & {one, other}


def candidates(leg: Part, earlier: Sequence[Part]) -> list[list[Part]]:
    """For each rule, in order, the earlier records that it selects."""
    near = [one for one in earlier if (one.upstream, one.credential_id) == (leg.upstream, leg.credential_id)]
    by_response = [one for one in near if same(one.response_id, leg.response_id)]
    by_event = [one for one in near if same(one.last_event_id, leg.resumed_from)]
    if leg.request_digest is None:
        return [by_response, [] if str(leg.resumed_from).isdigit() or leg.resumed_from == "start" else by_event]
    by_digest = [one for one in near if same(one.request_digest, leg.request_digest)]
    return [
        [one for one in by_digest if one in by_response and one in by_event],
        [one for one in by_digest if one in by_response],
        [one for one in by_digest if one in by_event],
        by_response,
        [one for one in by_digest if one.last_event_id is not None],
    ]


def beyond(position: str | None, last: str | None) -> bool:
    return str(position).isdigit() and str(last).isdigit() and int(str(position)) > int(str(last))


def searched(leg: Part, earlier: Sequence[Part]) -> Part | None:
    for number, found in enumerate(candidates(leg, earlier), start=1):
        broken = [one for one in found if one.outcome != "completed"]
        for latest in (broken or found)[-1:]:
            of_the_digest_alone = number == 5
            if not differ(latest.response_id, leg.response_id) and not (
                of_the_digest_alone and beyond(leg.resumed_from, latest.last_event_id)
            ):
                return latest
    return None


IDS = st.sampled_from([None, "1", "2", "a", "b", "start", "masked"])
PARTS = st.lists(
    st.builds(
        Part,
        name=st.just(""),
        upstream=st.sampled_from([None, "x", "x"]),
        credential_id=st.sampled_from([None, "k", "k"]),
        request_digest=IDS,
        response_id=IDS,
        last_event_id=IDS,
        resumed_from=IDS,
        outcome=st.sampled_from(["completed", "truncated"]),
    ),
    max_size=12,
).map(lambda parts: [replace(one, name=str(number)) for number, one in enumerate(parts)])


@given(PARTS)
def test_the_tables_find_the_same_as_a_search(parts: list[Part]) -> None:
    expected: dict[str, list[str]] = {}
    for place, part in enumerate(parts):
        before = None if part.resumed_from is None else searched(part, parts[:place])
        stream = expected[part.name] = [] if before is None else expected[before.name]
        stream.append(part.name)
    assert sorted(streams(parts)) == sorted({id(stream): stream for stream in expected.values()}.values())


def test_a_stored_response_that_is_read_again_continues_its_request_and_the_reads_before() -> None:
    """A background response is polled: none of these records names a position."""
    asked = Part("asked", response_id="resp_1", request_digest="digest", endpoint="/responses")
    reads = [Part(f"read {number}", response_id="resp_1", endpoint="/responses/{id}") for number in range(3)]
    assert streams([asked, *reads]) == [["asked", "read 0", "read 1", "read 2"]]
    assert streams(reads) == [["read 0", "read 1", "read 2"]]
    assert streams([asked, Part("asked again", response_id="resp_1", endpoint="/responses")]) == [
        ["asked"],
        ["asked again"],
    ]
    other = Part("other", response_id="resp_2", endpoint="/responses/{id}")
    assert streams([asked, reads[0], other]) == [["asked", "read 0"], ["other"]]
