"""The tap's balance of reads, in a mapped file that survives SIGKILL: seen = delivered + waiting + dropped by reason.

Each data directory has one file, shared by the processes of one tap. It holds a version word, then for each role a region
of 8-byte slots that only the process in that role writes (while none runs, also `close_balance`): an aligned 8-byte store
into a shared mapping, which the kernel keeps when the process ends. `writes_refused` and `clients` are states; the other
numbers grow.
The primary count of delivered reads is in the spool's database, changed in the transaction that deletes the rows; the slot
here mirrors it.
`spool.close_balance_after_crash` closes the balance before a tap's processes start.

Applications with a tap of their own have roles as relays do, but may start before the agent and run on after it. The
application in role app-N holds a lock on its `app_lock` file. Reads that a running application has not yet sent to a
recorder count as waiting.
"""

import fcntl
import os
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from streamgauge.spool.mapped_file import WORD, map_existing, open_mapped
from streamgauge.spool.response_counters import ResponseCounters, response_file


class DropReason(StrEnum):
    """Reasons why a seen read is not delivered. Add at the end: the order is the file's layout."""

    RECORDER_BEHIND = "recorder_behind"  # a buffer before the recorder, or a bound inside it, was full
    RECORDER_GONE = "recorder_gone"  # the recorder has no such stream: it was restarted, or the socket broke
    CAPTURE_FAULT = "capture_fault"  # a bug of ours while capturing this stream
    SPOOL_FULL = "spool_full"
    SPOOL_FAILED = "spool_failed"  # the disk refused the write: full, read-only, broken
    SPOOL_DAMAGED = "spool_damaged"  # it was in a spool that can no longer be read
    REFUSED = "refused"  # the broker refused it for good
    CRASH = "crash"  # in flight when a process was killed
    TOO_OLD = "too_old"  # it waited in the spool for longer than the limit
    PACKETS_LOST = "packets_lost"  # the packets that made it up were not captured
    NOT_REPORTED = "not_reported"  # Envoy did not report it, or not readably


class Incident(StrEnum):
    """Other faults that were handled. Add at the end: the order is the file's layout."""

    BAD_BATCH = "bad_batch"  # a batch on the recorder's socket that does not decode
    STREAM_REFUSED = "stream_refused"  # more streams open than the recorder's bound
    CAPTURE_FAULT = "capture_fault"  # streams whose capture ended because of a bug of ours
    BODY_CAPPED = (
        "body_capped"  # bodies of requests and responses that were not read: over a size, or no space in the budget
    )
    EVENT_CAPPED = "event_capped"  # single events discarded: over a size, or no space in the budget
    DECODE_FAULT = "decode_fault"  # streams whose coding or framing could not be decoded
    BUNDLE_LOST = "bundle_lost"  # bundles that the spool did not take even without reads
    SPOOL_DAMAGED = "spool_damaged"  # spool files moved aside
    SPOOL_DELETED = "spool_deleted"  # counted by earlier versions: spool files that were deleted while in use
    PACKETS_DROPPED = "packets_dropped"  # packets that the kernel captured and had no room for
    CLIENT_REFUSED = "client_refused"  # connections closed at once: their address had reached its limit
    CLIENT_SHED = "client_shed"  # idle connections closed to make room for others
    PUMP_OFF = "pump_off"  # relays crashed so often that the tap went on without the pump
    APP_REFUSED = "app_refused"  # attempts of applications to begin a capture while all their slots were taken
    TLS_REFUSED = (
        "tls_refused"  # TLS handshakes of clients that failed: without a certificate of --tls-client-ca, or no TLS
    )
    STREAM_OVER_SHARE = "stream_over_share"  # not captured: the recorder was behind, and the client had its share
    ENVOY_LOG_MISSING = "envoy_log_missing"  # exchanges for which no entry came from Envoy's access log
    ENVOY_LOG_AMBIGUOUS = "envoy_log_ambiguous"  # exchanges for which an entry came that may be another's
    ENVOY_NO_REQUEST_ID = "envoy_no_request_id"  # exchanges without an x-request-id, by which entries are found


class Refusal(StrEnum):
    """Codes in a relay's own answers to requests. Add at the end: the order is the file's layout."""

    MALFORMED_REQUEST = "malformed_request"
    METHOD_REFUSED = "method_refused"
    TARGET_REFUSED = "target_refused"
    AMBIGUOUS_FRAMING = "ambiguous_framing"
    UNKNOWN_UPSTREAM = "unknown_upstream"
    UPGRADE_REFUSED = "upgrade_refused"
    HEADERS_TOO_LARGE = "headers_too_large"
    BODY_TOO_LARGE = "body_too_large"
    PIPELINED_TOO_MUCH = "pipelined_too_much"
    HEADER_TIMEOUT = "header_timeout"
    BODY_TIMEOUT = "body_timeout"
    RELAY_BUSY = "relay_busy"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    UPSTREAM_INVALID = "upstream_invalid"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    CLIENT_UNAUTHORIZED = "client_unauthorized"

    @property
    def status(self) -> int:
        """The HTTP status of the response."""
        return _STATUS.get(self, 400)


_STATUS = {
    Refusal.CLIENT_UNAUTHORIZED: 401,
    Refusal.UNKNOWN_UPSTREAM: 404,
    Refusal.HEADER_TIMEOUT: 408,
    Refusal.BODY_TIMEOUT: 408,
    Refusal.BODY_TOO_LARGE: 413,
    Refusal.UPGRADE_REFUSED: 426,  # only after this one do all clients of WebSockets fall back to HTTP at once
    Refusal.HEADERS_TOO_LARGE: 431,
    Refusal.PIPELINED_TOO_MUCH: 431,
    Refusal.UPSTREAM_UNREACHABLE: 502,
    Refusal.UPSTREAM_INVALID: 502,
    Refusal.RELAY_BUSY: 503,
    Refusal.UPSTREAM_TIMEOUT: 504,
}


# A supervisor starts at most this many relays: far more than a gateway's host has cores.
MAX_RELAYS = 32
# Processes of applications with a tap, on one data directory: twice the workers of a host with 64 cores.
MAX_APPS = 128
_RELAYS = tuple(f"relay-{index}" for index in range(MAX_RELAYS))
_OF_TAP = (*_RELAYS, "recorder", "delivery")
ROLES = (*_OF_TAP, *(f"app-{index}" for index in range(MAX_APPS)))

_ALL_ROLES = range(len(ROLES))
_TAP = range(len(_OF_TAP))
_AFTER_RELAYS = range(MAX_RELAYS, len(_OF_TAP))
_APPS = range(len(_OF_TAP), len(ROLES))

_REGION = 64  # slots of a role: seen, delivered, reasons, incidents and refusals, with space for more
_SEEN, _DELIVERED, _DROPPED, _INCIDENTS, _REFUSED = 0, 1, 2, 16, 36
_DROPPED_SLOTS = {reason: _DROPPED + index for index, reason in enumerate(DropReason)}
_SENT = _REGION - 1  # how many of its reads a relay has sent to a recorder
_SEEN_BY_PUMP = _REGION - 2  # reads seen by a thread that runs without the interpreter's lock: the relay's pump
_WRITES_REFUSED = _REGION - 3  # 1 while the disk refuses what this role puts into the spool, else 0
_HEADS, _HEADS_NS = _REGION - 4, _REGION - 5  # heads of responses that a relay passed on, and how long that took (ns)
_CLIENTS, _CLIENTS_MOST = _REGION - 6, _REGION - 7  # connections of clients that a relay has, and may have: states
_ARRIVALS, _ARRIVALS_NS = (
    _REGION - 8,
    _REGION - 9,
)  # heads whose arrival was compared with Envoy's time, and the delays (ns)
_SEEN_SLOTS = (_SEEN, _SEEN_BY_PUMP)
_INCIDENT_SLOTS = {incident: _INCIDENTS + index for index, incident in enumerate(Incident)}
_REFUSAL_SLOTS = {refusal: _REFUSED + index for index, refusal in enumerate(Refusal)}
# The first word: "SGCOUNT" and the layout's version. A file with another word has another layout.
_LAYOUT = b"SGCOUNT3"
_SLOTS = 1 + len(ROLES) * _REGION
_SIZE = _SLOTS * WORD


class Balance(msgspec.Struct, frozen=True):
    """Reads, summed over the tap's processes: seen = delivered + waiting + sum(dropped), always."""

    seen: int
    delivered: int
    waiting: int
    dropped: dict[str, int]


class Counters:
    """One role's slots, and its counts of `responses`. Made once by the process in that role; a missing file is created.

    Raises OSError if the file cannot be made or mapped, ValueError for a role that does not exist.
    """

    def __init__(self, path: Path, role: str) -> None:
        if role not in ROLES:
            raise ValueError(f"no such role: {role}")
        self._map = open_mapped(path, _LAYOUT, _SIZE)
        self._words = memoryview(self._map).cast("Q")
        self._base = 1 + ROLES.index(role) * _REGION
        try:
            self.responses = ResponseCounters(path, role)
        except BaseException:
            self._words.release()
            self._map.close()
            raise

    def seen(self, reads: int = 1) -> None:
        """Count reads as they arrive, before anything else counts them."""
        self._words[self._base] += reads

    def pump_seen_word(self) -> memoryview:
        """The one-word slot in which the role's pump thread counts the reads that it sees. Release it before `close`."""
        word = self._base + _SEEN_BY_PUMP
        return self._words[word : word + 1]

    def delivered(self, reads: int) -> None:
        """Count reads that were delivered."""
        self._words[self._base + _DELIVERED] += reads

    def total_delivered(self) -> int:
        """Reads delivered so far, by all processes of the tap."""
        return sum(self._words[1 + _DELIVERED :: _REGION])

    def mirror_delivered(self, total: int) -> None:
        """Make the sum of all slots the spool's own total, by this role's slot; the slot never decreases."""
        word = self._base + _DELIVERED
        self._words[word] = max(total - self.total_delivered() + self._words[word], self._words[word])

    def sent_to_recorder(self, reads: int) -> None:
        """Count reads that this relay sent to its recorder: from then on the recorder accounts for them."""
        self._words[self._base + _SENT] += reads

    def drop_unsent_reads(self) -> None:
        """Close this role's balance when a relay or application starts in it.

        Reads that an earlier process in this role saw and did not send to its recorder are lost: dropped by `crash`. So are
        the responses of which it sent nothing.
        """
        self.responses.close_unsent()
        seen = self._words[self._base] + self._words[self._base + _SEEN_BY_PUMP]
        lost = seen - self._words[self._base + _SENT] - self._own_dropped()
        if lost > 0:
            self.dropped(DropReason.CRASH, lost)

    def _own_dropped(self) -> int:
        return sum(self._words[self._base + slot] for slot in _DROPPED_SLOTS.values())

    def dropped(self, reason: DropReason, reads: int = 1) -> None:
        """Count reads that will not be delivered."""
        self._words[self._base + _DROPPED_SLOTS[reason]] += reads

    def happened(self, incident: Incident, times: int = 1) -> None:
        """Count a fault that was handled."""
        self._words[self._base + _INCIDENT_SLOTS[incident]] += times

    def refused(self, refusal: Refusal) -> None:
        """Count a request that the relay answered by itself."""
        self._words[self._base + _REFUSAL_SLOTS[refusal]] += 1

    def head_passed_on(self, took_ns: int) -> None:
        """Count the head of a response that was written to the client `took_ns` after it had been read."""
        self._words[self._base + _HEADS] += 1
        self._words[self._base + _HEADS_NS] += took_ns

    def arrived(self, delay_ns: int) -> None:
        """Count the head of a response that was read from Envoy's report `delay_ns` after Envoy had received it."""
        self._words[self._base + _ARRIVALS] += 1
        self._words[self._base + _ARRIVALS_NS] += delay_ns

    def clients(self, connected: int, most: int | None = None) -> None:
        """Set how many connections of clients this relay has, and how many it may have: states, not counts."""
        self._words[self._base + _CLIENTS] = connected
        if most is not None:
            self._words[self._base + _CLIENTS_MOST] = most

    def writes_refused(self, refused: bool) -> None:
        """Set whether the disk refuses this role's writes to the spool: a state, not a count."""
        self._words[self._base + _WRITES_REFUSED] = int(refused)

    def close(self) -> None:
        """Unmap the files. The counts stay in them."""
        self.responses.close()
        self._words.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_balance(path: Path) -> Balance:
    """One consistent snapshot of a counters file; all zero if there is none. Raises OSError if it cannot be read.

    A read is counted as seen before it is counted as delivered or dropped. So `seen` is read last; `waiting`, the rest, is
    then never negative.
    """
    with _Snapshot(path) as slots:
        dropped = {reason.value: slots.total(slot) for reason, slot in _DROPPED_SLOTS.items()}
        delivered = slots.total(_DELIVERED)
        seen = slots.total(*_SEEN_SLOTS)
    return Balance(seen, delivered, seen - delivered - sum(dropped.values()), dropped)


def read_incidents(path: Path) -> dict[str, int]:
    """Handled faults by incident, summed over the processes; all zero if there is no file."""
    with _Snapshot(path) as slots:
        return {incident.value: slots.total(slot) for incident, slot in _INCIDENT_SLOTS.items()}


def read_refusals(path: Path) -> dict[Refusal, int]:
    """Requests that relays answered by themselves, summed over the processes; all zero if there is no file."""
    with _Snapshot(path) as slots:
        return {refusal: slots.total(slot) for refusal, slot in _REFUSAL_SLOTS.items()}


def read_heads_passed_on(path: Path) -> tuple[int, int]:
    """Heads of responses that relays passed on, and the nanoseconds from reading them to writing them, summed."""
    with _Snapshot(path) as slots:
        return slots.total(_HEADS), slots.total(_HEADS_NS)


def read_arrivals(path: Path) -> tuple[int, int]:
    """Heads of responses whose arrival was compared with Envoy's time, and the nanoseconds of their delays, summed."""
    with _Snapshot(path) as slots:
        return slots.total(_ARRIVALS), slots.total(_ARRIVALS_NS)


def read_clients(path: Path) -> tuple[int, int]:
    """Connections of clients that the relays have, and may have, summed; both 0 if there is no file."""
    with _Snapshot(path) as slots:
        return slots.total(_CLIENTS), slots.total(_CLIENTS_MOST)


def read_writes_refused(path: Path) -> bool:
    """Whether the disk refused the last write to the spool; False if there is no file."""
    with _Snapshot(path) as slots:
        return slots.total(_WRITES_REFUSED) > 0


def close_balance(path: Path, delivered: int, waiting: int, *, reason: DropReason) -> Balance:
    """Close the balance while none of the tap's processes runs. Gives the closed balance.

    `delivered`, `waiting`: reads by the spool's own totals. Reads that were seen and are in neither become dropped, by
    `reason`, except reads that running applications have not yet sent. If the spool has more reads than were seen (this
    file was lost, or a power cut lost its last counts), the difference is added to `seen`.
    """
    with Counters(path, "delivery") as delivery:
        delivery.mirror_delivered(delivered)
    close_app_balances(path)
    with _Snapshot(path) as slots:
        accounted = slots.total(*_SEEN_SLOTS, roles=_TAP) + slots.total(_SENT, roles=_APPS)
        lost = accounted - slots.total(*_DROPPED_SLOTS.values(), roles=_TAP) - slots.total(_DELIVERED) - waiting
    with Counters(path, "recorder") as recorder:
        if lost > 0:
            recorder.dropped(reason, lost)
        elif lost < 0:
            recorder.seen(-lost)
    _close_all_balances(path)
    for relay in _RELAYS:
        if response_file(path, relay).exists():
            with Counters(path, relay) as ended:
                ended.responses.close_unsent()
    return read_balance(path)


def _close_all_balances(path: Path) -> None:
    """Set what each role of the tap has sent: no relay runs, so all reads that it saw and did not drop are accounted for. No
    client is connected either.
    """
    with Counters(path, "recorder") as any_role:
        for role in _TAP:
            base = 1 + role * _REGION
            words = any_role._words
            dropped = sum(words[base + slot] for slot in _DROPPED_SLOTS.values()) if role < MAX_RELAYS else 0
            words[base + _CLIENTS] = words[base + _CLIENTS_MOST] = 0
            words[base + _SENT] = max(words[base] + words[base + _SEEN_BY_PUMP] - dropped, 0)


def close_recorder_balance(path: Path, delivered: int, waiting: int, *, reason: DropReason) -> None:
    """Close the balance of an earlier recorder, before the next one puts or delivers rows; relays continue.

    Reads that were sent to the earlier recorder and are neither delivered, waiting nor dropped become dropped, by `reason`.
    `delivered`, `waiting`: reads by the spool's own totals. If the spool has fewer delivered reads than were counted, it is
    a new file.
    """
    with Counters(path, "delivery") as delivery:
        delivery.mirror_delivered(delivered)
    with _Snapshot(path) as slots:
        dropped = slots.total(*_DROPPED_SLOTS.values(), roles=_AFTER_RELAYS)
        lost = slots.total(_SENT) - slots.total(_DELIVERED) - waiting - dropped
    if lost > 0:
        with Counters(path, "recorder") as recorder:
            recorder.dropped(reason, lost)


def app_lock(path: Path, index: int) -> Path:
    """The file that a running application in role app-INDEX locks (flock), in `apps` beside the counters file."""
    return path.parent / "apps" / f"{index}.lock"


def close_app_balances(path: Path) -> None:
    """Drop, by `crash`, the reads that ended applications saw and did not send to a recorder."""
    for index in range(MAX_APPS):
        try:
            lock = os.open(app_lock(path, index), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # no application ever had this role
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with Counters(path, f"app-{index}") as ended:
                ended.drop_unsent_reads()
        except BlockingIOError:  # the application runs
            pass
        finally:
            os.close(lock)


class _Snapshot:
    """A counters file read slot by slot, summed over the roles."""

    def __init__(self, path: Path) -> None:
        self._map = map_existing(path, _LAYOUT, _SIZE, write=False)
        self._words = memoryview(self._map).cast("Q") if self._map is not None else None

    def total(self, *slots: int, roles: range = _ALL_ROLES) -> int:
        if self._words is None:
            return 0
        return sum(self._words[1 + role * _REGION + slot] for role in roles for slot in slots)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._words is not None and self._map is not None:
            self._words.release()
            self._map.close()
