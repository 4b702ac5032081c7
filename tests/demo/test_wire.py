"""Responses as socket writes: framing, compression, cuts, and which write completes which token event."""

import zlib

import pytest

from streamgauge_demo.provider import LAST_CHUNK
from streamgauge_demo.scenario import Answer, Finale, Framing, Piece, Scenario
from streamgauge_demo.scenarios import SCENARIOS
from streamgauge_demo.wire import plan
from tests.each import each

PIECES = (Piece(0.5, b"data: 1\n\n", 1), Piece(0.1, b": wait\n\n"), Piece(0.2, b"data: 2\n\ndata: 3\n\n", 2))


def body_of(answer: Answer, *, gzip: bool = False) -> list[bytes]:
    return [write.data for write in plan(answer, {}, gzip=gzip)[1:]]


def test_a_head_says_status_type_and_framing() -> None:
    head = plan(Answer(pieces=PIECES), {"x-request-id": "req_1"}, gzip=False)[0].data
    assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
    assert b"x-request-id: req_1\r\n" in head
    assert head.endswith(b"transfer-encoding: chunked\r\n\r\n")


def test_an_unknown_status_has_a_phrase() -> None:
    assert plan(Answer(status=529), {}, gzip=False)[0].data.startswith(b"HTTP/1.1 529 Error\r\n")


def test_each_piece_is_a_chunk_and_the_last_chunk_ends_it() -> None:
    assert body_of(Answer(pieces=PIECES[:2])) == [b"9\r\ndata: 1\n\n\r\n", b"8\r\n: wait\n\n\r\n", LAST_CHUNK]


@pytest.mark.parametrize("finale", [Finale.EARLY_FIN, Finale.RESET, Finale.SILENT, Finale.COMMENTS])
def test_a_broken_response_has_no_last_chunk(finale: Finale) -> None:
    assert LAST_CHUNK not in body_of(Answer(pieces=PIECES, finale=finale))


def test_a_length_counts_the_bytes_on_the_wire() -> None:
    answer = Answer(pieces=PIECES, framing=Framing.LENGTH)
    head = plan(answer, {}, gzip=False)[0].data
    assert b"content-length: %d\r\n" % sum(map(len, body_of(answer))) in head


def test_compressed_pieces_can_be_read_one_by_one() -> None:
    answer = Answer(pieces=PIECES, framing=Framing.CLOSE)
    inflate = zlib.decompressobj(wbits=31)
    read = [inflate.decompress(data) for data in body_of(answer, gzip=True)]
    assert read == [*(piece.data for piece in PIECES), b""]
    assert inflate.eof


@pytest.mark.parametrize("size", [1, 2, 7, 61, 10_000])
def test_a_cut_changes_no_byte_no_token_and_no_total_time(size: int) -> None:
    whole, cut = plan(Answer(pieces=PIECES), {}, gzip=False), plan(Answer(pieces=PIECES, cut=size), {}, gzip=False)
    assert b"".join(write.data for write in cut[1:]) == b"".join(write.data for write in whole[1:])
    assert sum(write.tokens for write in cut) == sum(write.tokens for write in whole) == 3
    assert all(len(write.data) == size for write in cut[1:-1])
    assert sum(write.delay_s for write in cut) >= sum(write.delay_s for write in whole) - 1e-9


def test_a_token_event_is_complete_with_the_slice_that_has_its_blank_line() -> None:
    """One byte a slice: the token is in the slice of its second line feed, before the chunk's own line end."""
    cut = plan(Answer(pieces=PIECES[:1], cut=1), {}, gzip=False)[1:]
    (place,) = [number for number, write in enumerate(cut) if write.tokens]
    assert b"".join(write.data for write in cut[: place + 1]) == b"9\r\ndata: 1\n\n"


@each(SCENARIOS, lambda scenario: scenario.model)
def test_a_scenario_sends_its_token_events(scenario: Scenario) -> None:
    writes = plan(scenario.answer, {}, gzip=scenario.answer.gzip)
    assert sum(write.tokens for write in writes) == scenario.expected.content.token_events
