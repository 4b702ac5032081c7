"""Cassettes -> exchanges: of vcrpy (and so of pytest-recording), of Ruby's VCR, of betamax, and of go-vcr.

https://vcrpy.readthedocs.io, https://benoittgt.github.io/vcr (cassette format), https://betamax.readthedocs.io,
https://pkg.go.dev/gopkg.in/dnaeon/go-vcr.v4 (cassette). None of them records when a request began, or when each part of a
response came; `recorded_at` is when the whole exchange was written.
"""

from collections.abc import Iterable, Iterator, Mapping

from streamgauge.taps.replay.body import without_base64
from streamgauge.taps.replay.contract import BrokenExchange, BrokenRecording, Header, RecordedExchange, Tally
from streamgauge.taps.replay.members import (
    decoded,
    from_base64,
    headers,
    host_and_target,
    items,
    mapping,
    members,
    status_of,
    text,
    to_bytes,
)

# The name of the list of exchanges: in vcrpy; in VCR and betamax.
LISTS = ("interactions", "http_interactions")
# Limit of all bodies of one cassette with its aliases expanded (bytes); without aliases a body is no larger than its
# file.
MAX_UNFOLDED_BYTES = 1024**3

_Members = Mapping[object, object]


def json_interactions(document: memoryview) -> Iterator[object]:
    """The interactions of a JSON cassette. Raises BrokenRecording."""
    outer = members(document)
    interactions = next((listed for name in LISTS if (listed := items(outer.get(name))) is not None), None)
    if interactions is None:
        raise BrokenRecording("it is not a cassette: it has no list of interactions")
    return map(decoded, interactions)


def exchanges(interactions: Iterable[object], tally: Tally) -> Iterator[RecordedExchange]:
    """The exchanges of a cassette in order; `tally` counts those that cannot be read. Raises BrokenRecording."""
    unfolded_bytes = 0
    for index, interaction in enumerate(interactions):
        try:
            exchange = _exchange(mapping(interaction))
        except BrokenExchange as error:
            tally.count_broken(f"interactions[{index}]", error)
            continue
        unfolded_bytes += len(exchange.body or b"") + len(exchange.request_body or b"")
        if unfolded_bytes > MAX_UNFOLDED_BYTES:
            raise BrokenRecording(f"its decoded bodies exceed {MAX_UNFOLDED_BYTES} bytes: split it")
        yield exchange


def _exchange(interaction: _Members) -> RecordedExchange:
    request, response = mapping(interaction.get("request")), mapping(interaction.get("response"))
    host, target = host_and_target(request.get("uri", request.get("url")))
    return RecordedExchange(
        method=(text(request.get("method")) or "").upper(),
        target=target,
        host=host,
        request_headers=_headers(request),
        request_body=_body(request.get("body")),
        status=_status(response),
        headers=_headers(response),
        # For httpx, older versions of vcrpy kept the decoded content.
        body=_plain(_body(response.get("body", response.get("content")))),
    )


def _plain(body: bytes | None) -> bytes | None:
    return None if body is None else b"".join(without_base64((body,)))


def _status(response: _Members) -> int | None:
    """The status code: in the status, beside it (vcrpy for httpx, go-vcr), or the number before a text (`200 OK`)."""
    status = response.get("status")
    inner = status.get("code") if isinstance(status, Mapping) else None
    beside = response.get("status_code", response.get("code"))
    number = next((code for code in (inner, beside) if code is not None), status)
    return status_of(number.split(" ", 1)[0] if isinstance(number, str) else number)


def _headers(message: _Members) -> list[Header]:
    """Headers from a mapping: each name has one value, or a list of them."""
    pairs: list[tuple[object, object]] = []
    for name, values in mapping(message.get("headers")).items():
        pairs += [(name, value) for value in (values if isinstance(values, list) else [values])]
    return headers(pairs)


def _body(body: object) -> bytes | None:
    """A body that is text or bytes, a mapping that holds them, or a list of pieces. A missing or null body is empty."""
    if body is None:
        return b""
    if isinstance(body, list):
        pieces = [to_bytes(piece) for piece in body]
        return None if None in pieces else b"".join(piece for piece in pieces if piece is not None)
    if not isinstance(body, Mapping):
        return to_bytes(body)
    coded = body.get("base64_string")
    if isinstance(coded, str | bytes):
        return from_base64(coded)
    if "string" in body:
        return b"" if body["string"] is None else to_bytes(body["string"], body.get("encoding"))
    return _of_object(body)


def _of_object(body: _Members) -> bytes | None:
    """A request's body that was a file or an iterator: PyYAML wrote the object's state, or its arguments."""
    state = body.get("state", body.get("args"))
    first = state[0] if isinstance(state, list) and state else None
    return None if first is None else _body(first)
