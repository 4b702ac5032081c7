"""librdkafka's mock cluster: a broker in this process that is slow, unreachable or refuses requests as a test sets it.

Python's binding creates one (`test.mock.num.brokers`) but has no functions to control it; the library in the wheel has:
https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka_mock.h
"""

import ctypes
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

# Error codes and API keys of the protocol: https://kafka.apache.org/protocol
UNKNOWN = -1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC = 3
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
TOPIC_AUTHORIZATION_FAILED = 29
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE = 45
STORAGE = 56
PRODUCE = 0

_PRODUCER = 0  # rd_kafka_type_t
_BROKER = 1  # its id
_POINTER = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (ctypes.c_int, [_POINTER, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
    "rd_kafka_new": (_POINTER, [ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, ctypes.c_int]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (ctypes.c_char_p, [_POINTER]),
    "rd_kafka_mock_topic_create": (ctypes.c_int, [_POINTER, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]),
    "rd_kafka_mock_topic_set_error": (None, [_POINTER, ctypes.c_char_p, ctypes.c_int]),
    "rd_kafka_mock_broker_set_down": (ctypes.c_int, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (ctypes.c_int, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_rtt": (ctypes.c_int, [_POINTER, ctypes.c_int32, ctypes.c_int]),
    "rd_kafka_mock_broker_set_host_port": (ctypes.c_int, [_POINTER, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int]),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [_POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)],
    ),
    "rd_kafka_mock_clear_request_errors": (None, [_POINTER, ctypes.c_int16]),
    "rd_kafka_mock_start_request_tracking": (None, [_POINTER]),
    "rd_kafka_mock_get_requests": (ctypes.POINTER(_POINTER), [_POINTER, ctypes.POINTER(ctypes.c_size_t)]),
    "rd_kafka_mock_request_api_key": (ctypes.c_int16, [_POINTER]),
    "rd_kafka_mock_request_destroy_array": (None, [ctypes.POINTER(_POINTER), ctypes.c_size_t]),
}


def _library() -> Any:
    packages = Path(confluent_kafka.__file__).parent.parent
    (found,) = [
        *packages.glob("confluent_kafka.libs/librdkafka*"),
        *packages.glob("confluent_kafka/.dylibs/librdkafka*"),
    ]
    library = ctypes.CDLL(str(found))
    for name, (gives, takes) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = gives, takes
    return library


class MockCluster:
    """One mock broker at `bootstrap`. It keeps about 5 MB of each partition."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._cluster = library.rd_kafka_mock_cluster_new(handle, 1)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0

    def fail_topic(self, name: str, error: int) -> None:
        """Answers each request for this topic's metadata with this error; 0 ends that."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def down(self) -> None:
        """Closes connections and refuses new ones."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, _BROKER)

    def up(self) -> None:
        self._library.rd_kafka_mock_broker_set_up(self._cluster, _BROKER)

    def slow(self, milliseconds: int) -> None:
        """Delays each response by this time."""
        self._library.rd_kafka_mock_broker_set_rtt(self._cluster, _BROKER, milliseconds)

    def advertise(self, host: str, port: int) -> None:
        """Sets the address that clients are given."""
        assert self._library.rd_kafka_mock_broker_set_host_port(self._cluster, _BROKER, host.encode(), port) == 0

    def fail_produce(self, errors: Sequence[int]) -> None:
        """The next produce requests get these errors, one each."""
        array = (ctypes.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, PRODUCE, len(errors), array)

    def fail_no_more(self) -> None:
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, PRODUCE)

    def track(self) -> None:
        """Counts requests from now on."""
        self._library.rd_kafka_mock_start_request_tracking(self._cluster)

    def requests(self) -> Counter[int]:
        """Requests since `track`, by API key."""
        count = ctypes.c_size_t()
        found = self._library.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        keys = Counter(self._library.rd_kafka_mock_request_api_key(found[place]) for place in range(count.value))
        self._library.rd_kafka_mock_request_destroy_array(found, count.value)
        return keys

    def destroy(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    """A mock broker, for as long as the block lasts."""
    library = _library()
    why = ctypes.create_string_buffer(512)
    settings = library.rd_kafka_conf_new()
    for name, value in ((b"log_level", b"0"), (b"bootstrap.servers", b"127.0.0.1:1")):
        assert library.rd_kafka_conf_set(settings, name, value, why, len(why)) == 0, why.value
    handle = library.rd_kafka_new(_PRODUCER, settings, why, len(why))
    assert handle, why.value
    cluster = MockCluster(library, handle)
    try:
        yield cluster
    finally:
        cluster.destroy()
        library.rd_kafka_destroy(handle)
