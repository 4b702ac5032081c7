"""The rules of resumed streams: what a request resumes, which events its stream repeats, which record it continues.

**Requests.** A request resumes a stream if it names a position in it, by a query parameter of a stored response or by
Last-Event-ID (`resumption_of`). FROM_START: it asks for a stored response from its start.

**Events.** A stream that is resumed after a position lacks the events before it, unless it repeats them: those do not count
(`begins_later`, `repeats`). A stored response that is read from its start lacks nothing and repeats nothing.

**Records.** A record is *resumed* if its request names a position, or asks for a stored response; any other record is an
*origin*. A resumed record continues at most one earlier record of the same upstream and credential: the record that the
first matching rule below finds (`Streams`). An origin continues nothing, so two origins are never one stream, even if they
share ids. A stored response that is read again as a whole (`GET /responses/{id}`, as to poll a response in the background)
is resumed in this sense, too: it reports the usage of the request that made the response. Positions that are numbers are
equal in many streams by chance, so a number alone identifies no stream.

How usage then counts once: `ledger/resumption.py`, and `metrics/resumed_usage.py` for counters. Decision 7
(docs/decisions/0007-resumed-streams.md) gives the reasons.
"""

import re
from collections.abc import Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

from streamgauge.core.capture.segments import FROM_START, Opening
from streamgauge.core.safe_values import MASKED, safe_id

# --- requests ----------------------------------------------------------------------------------------------------------


class Resumption(NamedTuple):
    """The stream and position that a request resumes; all None if it resumes nothing. Fields are named as in Opening."""

    resumed_from: str | None = None
    resumed_after: int | None = None
    continues: str | None = None


class _Stored(NamedTuple):
    """An endpoint that sends a stored response again.

    `path` contains the response's id. `parameter`: the query parameter with the position after which to begin; it has
    priority over Last-Event-ID. Without a position the stream begins at its start. `numbered`: positions are the events'
    sequence numbers; else they are opaque. `always`: the response is a stream also without `stream=true`.
    """

    path: re.Pattern[str]
    parameter: str
    numbered: bool
    always: bool = False


_STORED = (
    # https://platform.openai.com/docs/api-reference/responses/get
    _Stored(re.compile(r"/responses/([^/]+)\Z"), "starting_after", numbered=True),
    # https://ai.google.dev/api/interactions-api
    _Stored(re.compile(r"/interactions/([^/:]+)\Z"), "last_event_id", numbered=False),
    # https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1beta1/interactions/getStream
    _Stored(re.compile(r"/interactions/([^/:]+):stream\Z"), "lastEventId", numbered=False, always=True),
)
_SEQUENCE_NUMBER = re.compile(r"[0-9]{1,15}")


def resumption_of(method: str, path: str, headers: Mapping[str, str], parameters: Mapping[str, str]) -> Resumption:
    """The stream and position that a request resumes. `headers`: by lower-case name. `parameters`: of the query."""
    event_id = safe_id(headers.get("last-event-id"))
    for stored in _STORED if method == "GET" else ():
        match, after = stored.path.search(path), parameters.get(stored.parameter, "")
        if match is None:
            continue
        response_id = safe_id(unquote(match[1]))
        if _SEQUENCE_NUMBER.fullmatch(after) if stored.numbered else after:
            return Resumption(safe_id(after), int(after) if stored.numbered else None, response_id)
        if event_id is None and (stored.always or parameters.get("stream") == "true"):
            return Resumption(FROM_START, continues=response_id)
        return Resumption(event_id, continues=response_id if event_id else None)
    return Resumption(event_id)


# --- events ------------------------------------------------------------------------------------------------------------

# Event ids that are numbers of up to 18 digits, which fit 64 bits.
_NUMBERS = re.compile(r"[0-9]{1,18}(?::[0-9]{1,18})*")


def begins_later(opening: Opening | None) -> bool:
    """Whether a request names a position in an earlier stream that is not its start."""
    return opening is not None and opening.resumed_from not in (None, FROM_START)


def repeats(opening: Opening, sequence_number: int | None, last_event_id: str | None) -> bool:
    """Whether a resumed stream repeats an event at or below the position that its request names.

    `sequence_number`: of the event. `last_event_id`: the stream's last event id so far, the event's own included.
    """
    if opening.resumed_from is None or not begins_later(opening):
        return False
    if opening.resumed_after is not None:
        return sequence_number is not None and sequence_number <= opening.resumed_after
    # Where events have no ids, a position can only be a sequence number.
    if last_event_id is None and sequence_number is not None:
        position: tuple[int, ...] = (sequence_number,)
    else:
        position = _numbers(last_event_id or "")
    requested = _numbers(opening.resumed_from)
    return bool(position) and len(position) == len(requested) and position <= requested


def _numbers(event_id: str) -> tuple[int, ...]:
    """An event id as numbers, if it is one number or several (Replicate's time and count); else empty."""
    return tuple(int(number) for number in event_id.split(":")) if _NUMBERS.fullmatch(event_id) else ()


# --- records -----------------------------------------------------------------------------------------------------------

# Endpoints that give a stored response again, whose record may have no `resumed_from`.
STORED_ENDPOINTS = ("/responses/{id}",)

# Sequence numbers, and the event ids of providers that number the events of each stream.
_NUMBER = re.compile(r"[0-9]*")


class ResumableRecord(Protocol):
    """The fields of a record that the rules read, as `streamgauge.records` describes them."""

    @property
    def upstream(self) -> str | None:
        """The name of the upstream: a stream is resumed at the same one."""

    @property
    def credential_id(self) -> str | None:
        """The keyed hash of the API key: a stream is resumed with the same one."""

    @property
    def request_digest(self) -> str | None:
        """The keyed hash of the request's body; None without a body."""

    @property
    def response_id(self) -> str | None:
        """The id that the response or the path of the request gives; `masked` if it is no id."""

    @property
    def last_event_id(self) -> str | None:
        """The last event id that the response sent."""

    @property
    def resumed_from(self) -> str | None:
        """The position that the request names; None for an origin."""

    @property
    def endpoint(self) -> str | None:
        """The template of the request's path."""

    @property
    def outcome(self) -> str:
        """The outcome. The rules distinguish only `completed` from the others."""


def is_resumed(record: ResumableRecord) -> bool:
    """Whether a record may continue an earlier one."""
    return record.resumed_from is not None or record.endpoint in STORED_ENDPOINTS


class _Rule(NamedTuple):
    """A resumed record continues the latest earlier record whose `earlier` fields equal its `own` fields, all known.

    It never continues a record with another response id. `any_event`: the position need not be the record's last event,
    but must not lie after it. `unlike_others`: the position must be an event id that is more than a number.
    """

    own: tuple[str, ...]
    earlier: tuple[str, ...]
    any_event: bool = False
    unlike_others: bool = False


# A client that resumes with Last-Event-ID sends the same request again (WHATWG HTML 9.2.2), so its body, if it has one,
# shows what it continues. Its position is often before the last event that the tap saw, because events are lost on the
# way to the client.
_WITH_BODY = (
    _Rule(("request_digest", "response_id", "resumed_from"), ("request_digest", "response_id", "last_event_id")),
    _Rule(("request_digest", "response_id"), ("request_digest", "response_id")),
    _Rule(("request_digest", "resumed_from"), ("request_digest", "last_event_id")),
    _Rule(("response_id",), ("response_id",)),
    _Rule(("request_digest",), ("request_digest",), any_event=True),
)
# A request without a body names a stored response in its path, or only an event. The response id of its record is the
# one from the path, even if the stream reports none. An event alone identifies a stream only if the provider's event
# ids differ between streams.
_WITHOUT_BODY = (
    _Rule(("response_id",), ("response_id",)),
    _Rule(("resumed_from",), ("last_event_id",), unlike_others=True),
)
_EARLIER = tuple({(rule.earlier, rule.any_event): None for rule in (*_WITH_BODY, *_WITHOUT_BODY)})

Key = tuple[object, ...]
Stream = TypeVar("Stream")
_Value = TypeVar("_Value")


class Known(NamedTuple, Generic[Stream]):
    """An earlier record: the fields that may exclude it after a rule found it, and the stream that it belongs to."""

    response_id: str | None
    last_event_id: str | None
    stream: Stream


class Table(Protocol[_Value]):
    """A store of records by key: a dict, or a cache that evicts entries."""

    def get(self, key: Key, /) -> _Value | None:
        """The value of a key; None if the key was never set, or its entry was evicted."""

    def __setitem__(self, key: Key, value: _Value, /) -> None: ...


class Streams(Generic[Stream]):
    """The records so far, by the keys of the rules: for each key the latest that did not complete, and the latest that did.

    `broken` and `completed` are two tables, so that in a cache the many completed records do not evict the few broken ones.
    """

    def __init__(self, broken: Table[Known[Stream]], completed: Table[Known[Stream]]) -> None:
        self._broken = broken
        self._completed = completed

    def add(self, record: ResumableRecord, stream: Stream) -> None:
        """Add a record as one of `stream`. A record that is added later counts as a later one."""
        table = self._completed if record.outcome == "completed" else self._broken
        known = Known(record.response_id, record.last_event_id, stream)
        for names, any_event in _EARLIER:
            key = _key(record, names, names)
            if key is not None and not (any_event and record.last_event_id is None):
                table[key] = known

    @staticmethod
    def keys_of(record: ResumableRecord) -> list[Key]:
        """The keys that `continued_by` may look up."""
        rules = () if not is_resumed(record) else _WITHOUT_BODY if record.request_digest is None else _WITH_BODY
        return [key for rule in rules if (key := _key(record, rule.own, rule.earlier)) is not None]

    def continued_by(self, record: ResumableRecord) -> Stream | None:
        """The stream that a record continues; None for an origin, and for a resumed record if no rule matches."""
        if not is_resumed(record):
            return None
        for rule in _WITHOUT_BODY if record.request_digest is None else _WITH_BODY:
            key = _key(record, rule.own, rule.earlier)
            earlier = None if key is None else self._broken.get(key) or self._completed.get(key)
            if earlier is not None and _fits(rule, record, earlier):
                return earlier.stream
        return None


def _key(record: ResumableRecord, names: tuple[str, ...], called: tuple[str, ...]) -> Key | None:
    """The key made of a record's values of `names`, filed under the field names `called`; None if a value is unknown."""
    key: list[object] = [called, record.upstream, record.credential_id]
    for name in names:
        value = getattr(record, name)
        if value is None or value == MASKED:
            return None
        key.append(value)
    return tuple(key)


def _fits(rule: _Rule, resumed: ResumableRecord, earlier: Known[Stream]) -> bool:
    """Whether a resumed record may continue the record that a rule names."""
    position, last = resumed.resumed_from or "", earlier.last_event_id or ""
    if rule.unlike_others and (position == FROM_START or _NUMBER.fullmatch(position)):
        return False
    if rule.any_event and _beyond(position, last):
        return False
    return earlier.response_id == resumed.response_id or not {None, MASKED}.isdisjoint(
        (earlier.response_id, resumed.response_id)
    )


def _beyond(position: str, last: str) -> bool:
    """Whether a position lies after a stream's last event. False unless both are numbers, which may have any length."""
    if not (_NUMBER.fullmatch(position) and _NUMBER.fullmatch(last) and last):
        return False
    high, low = position.lstrip("0"), last.lstrip("0")
    return (len(high), high) > (len(low), low)
