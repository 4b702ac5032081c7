"""What must hold for replay with any file: records or one sentence, and the same ones each time."""

import tempfile
from pathlib import Path

from streamgauge.core.record import encode_record
from streamgauge.taps.replay.contract import BrokenRecording
from tests.taps.packets.wire import Line, pcap, pcapng
from tests.taps.replay import recordings
from tests.taps.replay.recordings import Sample, records_in

BODY = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
SAMPLE = Sample(BODY, request_body=b'{"model":"m"}', request_headers=())
# A sentence for a person (characters).
MAX_SENTENCE = 400
_DRAWN_EACH_TIME = ("stream_id", "tap_instance")


def check_recording(data: bytes) -> None:
    """Reads a file of any content twice; asserts that both results are equal."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "recording"
        path.write_bytes(data)
        assert _told(path) == _told(path)
        assert list(Path(folder).iterdir()) == [path]


def _told(path: Path) -> tuple[list[dict[str, object]], str]:
    records: list[dict[str, object]] = []
    try:
        for record in records_in(path):
            assert encode_record(record)
            records.append({**recordings.plain(record), **dict.fromkeys(_DRAWN_EACH_TIME)})
    except BrokenRecording as fault:
        assert 0 < len(str(fault)) < MAX_SENTENCE
        return records, str(fault)
    return records, ""


def recording_seeds() -> list[bytes]:
    """One of each format."""
    request = b"POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(BODY)
    packets = Line().open().ask(request).answer(answer, BODY).finish(0).finish(1).sent
    written = [write(SAMPLE) for write in (*recordings.WRITERS.values(), recordings.cassette_json)]
    return [BODY, *written, pcap(packets), pcapng(packets)]
