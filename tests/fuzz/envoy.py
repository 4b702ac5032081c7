"""What must hold for Envoy's messages with any bytes: a fault where Google's library has one, and no other error."""

from collections.abc import Callable

from google.protobuf.message import DecodeError

from streamgauge.taps.envoy.messages import log_entries, log_entry_of, processing_of
from streamgauge.taps.envoy.protobuf import ProtobufFault
from tests.fuzz.drawn import Drawn
from tests.taps.envoy.schema import MESSAGES, body, entry, headers, log, processing

READERS: tuple[tuple[str, Callable[[bytes], object]], ...] = (
    ("ProcessingRequest", processing_of),
    ("Entry", log_entry_of),
    ("StreamAccessLogsMessage", lambda data: [log_entry_of(one) for one in log_entries(data)]),
)


def check_envoy(data: bytes) -> None:
    """A message of one kind, which the first byte chooses."""
    drawn = Drawn(data)
    name, read = drawn.one_of(READERS)
    message = drawn.rest()
    try:
        read(message)
    except ProtobufFault:
        try:
            MESSAGES[name].FromString(message)
        except DecodeError:
            return
        raise


def envoy_seeds() -> list[bytes]:
    """Messages of each kind."""
    head = headers((":method", "POST"), (":path", "/v1/messages"), ("x-request-id", "id"))
    attributes = {"request.time": "2026-12-01T11:52:40.5+00:00"}
    one = entry("id", 5, 15, 24, first_rx_ns=1, last_rx_ns=2, duration_ns=3, details="d", failure="f")
    return [
        b"\0" + processing(request_headers=head, attributes=attributes),
        b"\0" + processing(response_body=body(b"data: x\n\n", ends=True)),
        b"\1" + one.SerializeToString(),
        b"\2" + log(one, one),
    ]
