"""The page as protobuf, read back by a decoder of the wire format that knows the fields of metrics.proto alone."""

import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.metrics.prometheus import Metrics
from tests.metrics.pages import read_page
from tests.metrics.records import make_record, make_timing

ACCEPT = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
FIRST_TOKEN = "streamgauge_time_to_first_token_seconds"


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Each field of a message: its number, and an int, a float or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 1:
            yield tag >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            assert tag & 7 == 2
            length, at = varint(data, at)
            yield tag >> 3, data[at : at + length]
            at += length


def named(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def signed(number: int) -> int:
    return number >> 1 if number % 2 == 0 else -(number + 1 >> 1)


def varints(data: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers


def families(body: bytes) -> dict[str, dict[int, list[Any]]]:
    found, at = {}, 0
    while at < len(body):
        length, at = varint(body, at)
        family = named(body[at : at + length])
        at += length
        found[family[1][0].decode()] = family
    return found


def labels_of(metric: dict[int, list[Any]]) -> dict[str, str]:
    pairs = (named(pair) for pair in metric.get(1, []))
    return {pair[1][0].decode(): pair[2][0].decode() for pair in pairs}


def native_counts(histogram: dict[int, list[Any]]) -> dict[int, int]:
    """Counts by index of the native buckets."""
    counts, index, count, deltas = {}, 0, 0, varints(histogram[13][0]) if 13 in histogram else []
    for span in (named(span) for span in histogram[12]):
        index += signed(span[1][0])
        for _ in range(span[2][0]):
            count += signed(deltas.pop(0))
            counts[index] = count
            index += 1
    assert not deltas
    return counts


def test_protobuf_says_the_same_as_text() -> None:
    metrics = Metrics()
    metrics.observe(make_record())
    page = metrics.page(ACCEPT)
    assert page.content_type.startswith("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily")
    text = read_page(metrics.render())
    seen = 0
    for name, family in families(page.body).items():
        for metric in map(named, family[4]):
            labels = labels_of(metric)
            if family[3][0] == 4:
                histogram = named(metric[7][0])
                assert histogram[1][0] == text.value(f"{name}_count", **labels)
                assert histogram[2][0] == text.value(f"{name}_sum", **labels)
                for bucket in map(named, histogram[3]):
                    bound = "+Inf" if math.isinf(bucket[2][0]) else str(bucket[2][0])
                    assert bucket[1][0] == text.value(f"{name}_bucket", **labels, le=bound)
                    seen += 1
                seen += 2
            else:
                value = named(metric[3 if family[3][0] == 0 else 2][0])[1][0]
                assert value == text.value(name, **labels)
                seen += 1
    assert seen == len(text.samples)


@given(st.lists(st.floats(0, 2_000_000), min_size=1, max_size=40))
def test_native_buckets_hold_each_value(values: list[float]) -> None:
    metrics = Metrics()
    for value in values:
        metrics.observe(make_record(timing=make_timing(first_token_s=value)))
    (metric,) = families(metrics.page(ACCEPT).body)[FIRST_TOKEN][4]
    histogram = named(named(metric)[7][0])
    schema, threshold = signed(histogram[5][0]), histogram[6][0]
    assert histogram[7][0] == sum(value <= threshold for value in values)
    counts = native_counts(histogram)
    assert sum(counts.values()) + histogram[7][0] == len(values)
    for index, count in counts.items():
        low, high = (2 ** (place / 2**schema) for place in (index - 1, index))
        inside = sum(low * (1 - 1e-9) < min(value, 2**20) <= high * (1 + 1e-9) for value in values if value > threshold)
        assert 0 < count <= inside


def test_gaps_have_bounded_buckets_alone() -> None:
    metrics = Metrics()
    metrics.observe(make_record())
    (metric,) = families(metrics.page(ACCEPT).body)["streamgauge_inter_chunk_latency_seconds"][4]
    histogram = named(named(metric)[7][0])
    assert 3 in histogram
    assert not {5, 12, 13} & set(histogram)


@pytest.mark.parametrize("trace_id", [None, "4bf92f3577b34da6a3ce929d0e0e4736"])
def test_exemplars_name_the_stream(trace_id: str | None) -> None:
    metrics = Metrics()
    metrics.observe(make_record(trace_id=trace_id))
    (metric,) = families(metrics.page(ACCEPT).body)[FIRST_TOKEN][4]
    histogram = named(named(metric)[7][0])
    (in_bucket,) = [bucket[3][0] for bucket in map(named, histogram[3]) if 3 in bucket]
    for exemplar in (named(in_bucket), named(histogram[16][0])):
        wanted = {"stream_id": make_record().stream_id} | ({} if trace_id is None else {"trace_id": trace_id})
        assert labels_of(exemplar) == wanted
        assert exemplar[2][0] == 0.2
    at = named(named(histogram[16][0])[3][0])
    assert at[1][0] + at[2][0] / 1e9 == pytest.approx(1772366400.35, abs=1e-6), "when the stream ended"
