"""mitmproxy's flow files -> exchanges, of any version since 0.14.

mitmproxy/io/compat.py lists the members of each version. Of the members used here two changes matter: a message's `body`
became `content`, and keys became text. Times are real: of a message's head and of its last byte, in seconds since 1970
(mitmproxy/http.py). Content has no transfer framing; it is None if mitmproxy streamed it without keeping it.
"""

import re
from collections.abc import Iterator, Mapping

from streamgauge.core.capture.segments import Ending
from streamgauge.taps.replay.contract import BrokenExchange, Header, RecordedExchange, Tally, Times
from streamgauge.taps.replay.members import headers, mapping, number, since, status_of, text, to_bytes, wall
from streamgauge.taps.replay.tnetstring import Readable, values

# The text of a flow's error if the client disconnected: mitmproxy/proxy/layers/http.
_CLIENT_LEFT = re.compile(r"client disconnected|by client", re.IGNORECASE)

_Members = Mapping[object, object]


def exchanges(file: Readable, tally: Tally) -> Iterator[RecordedExchange]:
    """The exchanges of a flow file in order; `tally` counts those that cannot be read. Raises BrokenRecording.

    Flows other than HTTP (TCP, UDP, DNS) are skipped.
    """
    for place, value in enumerate(values(file), 1):
        flow = mapping(value)
        if text(flow.get("type")) not in ("http", None):
            continue
        try:
            yield _exchange(flow)
        except BrokenExchange as error:
            tally.count_broken(f"flow {place}", error)


def _exchange(flow: _Members) -> RecordedExchange:
    request, response = mapping(flow.get("request")), mapping(flow.get("response"))
    target = text(request.get("path"))
    if not target:
        raise BrokenExchange("it contains no request")
    status = status_of(response.get("status_code", response.get("code")))
    return RecordedExchange(
        method=(text(request.get("method")) or "").upper(),
        target=target,
        host=text(request.get("host")),
        request_headers=_headers(request),
        request_body=_content(request),
        status=status,
        headers=_headers(response),
        body=_content(response),
        times=_times(request, response, mapping(flow.get("server_conn")), mapping(flow.get("error"))),
        ending=_ending(status, response, mapping(flow.get("error"))),
    )


def _headers(message: _Members) -> list[Header]:
    fields = message.get("headers")
    pairs = fields if isinstance(fields, list) else []
    return headers([(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2])


def _content(message: _Members) -> bytes | None:
    return to_bytes(message.get("content", message.get("body")))


def _times(request: _Members, response: _Members, server: _Members, error: _Members) -> Times:
    """The times of a flow. When the request was sent upstream is unknown: its `timestamp_end` is the client's last byte."""
    start = number(request.get("timestamp_start"))
    head = number(response.get("timestamp_start"))
    end = number(response.get("timestamp_end")) or number(error.get("timestamp"))
    connected = number(server.get("timestamp_tls_setup", server.get("timestamp_ssl_setup")))
    connected = connected or number(server.get("timestamp_tcp_setup"))
    if connected is not None and head is not None and connected > head:
        connected = None  # of a later reconnect
    return Times(
        started_ns=wall(start),
        connected_ns=since(connected, start),
        head_ns=since(head, start),
        end_ns=since(end, start),
    )


def _ending(status: int | None, response: _Members, error: _Members) -> Ending:
    message = text(error.get("msg"))
    if message is not None:
        return Ending.CLIENT if _CLIENT_LEFT.search(message) else Ending.RESET
    if status is None or response.get("timestamp_end") is None:
        return Ending.CUT  # saved before the exchange ended
    return Ending.COMPLETE
