"""Packet captures: one record for each LLM exchange, with the times of its packets."""

import io
from pathlib import Path
from typing import Any

import pytest

from streamgauge.taps.replay.captures import segments_of
from streamgauge.taps.replay.contract import BrokenRecording, Tally
from tests.taps import talk
from tests.taps.packets.wire import BEGAN, STEP, Line, pcap, pcapng
from tests.taps.replay.recordings import plain, records_in
from tests.taps.talk import BODY, EVENTS, SSE, head

ASKED = b'{"model":"m-1","stream":true}'


def asking(path: str) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer A SECRET\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(), len(ASKED), ASKED,
    )  # fmt: skip


def answered(path: str = "/v1/chat/completions", port: int = 40_000) -> Line:
    line = Line(("10.0.0.1", port)).open().ask(asking(path))
    return line.answer(head(SSE, ("content-length", str(len(BODY)))), *EVENTS).finish(0).finish(1)


@pytest.mark.parametrize("write", [pcap, pcapng])
@pytest.mark.parametrize("capture", ["masked", "full"])
def test_a_capture_gives_records_with_real_times(write: object, capture: str, tmp_path: Path) -> None:
    file, raw = tmp_path / "x.pcap", tmp_path / "x.sse"
    file.write_bytes(write(answered().sent))  # type: ignore[operator]
    raw.write_bytes(BODY)
    tally = Tally()
    [record] = records_in(file, tally, capture=capture)
    [body] = records_in(raw, capture=capture)
    assert (tally.exchanges, record.request_model, record.status_code) == (1, "m-1", 200)
    assert (record.outcome, record.usage, record.counts.text_chars) == (
        body.outcome,
        body.usage,
        body.counts.text_chars,
    )
    # Each packet is one step after the previous one: request, head, then events, of which the second holds the first text.
    assert record.timing.headers_s == STEP / 1e9
    assert record.timing.first_token_s == 3 * STEP / 1e9
    assert record.timing.gaps.p50_s == 2 * STEP / 1e9
    assert record.started_at == f"2023-11-14T22:13:20.{3 * STEP // 1000:06}Z"
    assert BEGAN == 1_700_000_000_000_000_000
    assert "SECRET" not in str(plain(record))


def test_many_streams_at_once_have_a_record_each(tmp_path: Path) -> None:
    lines = [answered(port=40_000 + number) for number in range(200)]
    packets = sorted((packet for line in lines for packet in line.sent), key=lambda packet: packet[0])
    (tmp_path / "x").write_bytes(pcap(packets))
    records = records_in(tmp_path / "x")
    assert [record.outcome for record in records] == ["completed"] * 200
    assert len({record.stream_id for record in records}) == 200


def test_a_broken_file_gives_the_records_before_the_error() -> None:
    file = pcap(answered().sent)
    segments: list[Any] = []
    with pytest.raises(BrokenRecording, match="it is damaged: a packet of 4294967295 bytes, at byte"):
        segments.extend(segments_of(io.BytesIO(file + bytes(8) + b"\xff" * 8), talk.settings(), Tally()))
    assert segments[-1].end is not None


def test_a_capture_without_an_llm_has_no_exchange(tmp_path: Path) -> None:
    line = Line().open().ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").answer(head(("content-length", "2")), b"ok").finish()
    (tmp_path / "x").write_bytes(pcap(line.sent))
    tally = Tally()
    assert records_in(tmp_path / "x", tally) == []
    assert tally.exchanges == 0
