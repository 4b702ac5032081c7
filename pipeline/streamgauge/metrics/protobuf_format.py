"""The page as delimited protobuf messages (io.prometheus.client.MetricFamily): the one format with native histograms.

Prometheus asks for it where native histograms are on. The messages are few and their fields fixed, so they are encoded
here (https://github.com/prometheus/client_model, io/prometheus/client/metrics.proto). A histogram has its bounded buckets,
too: a scraper takes those that it can read. Where values are not known, only their buckets (gaps), it has no native ones.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

from streamgauge.metrics.budgets import Key
from streamgauge.metrics.declarations import Kind, Metric
from streamgauge.metrics.series import NATIVE_SCHEMA, ZERO_THRESHOLD, Exemplar, Histogram
from streamgauge.metrics.text_format import Shown

CONTENT_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

# The protocol's number of a type, and the field of a Metric that holds its value.
_TYPES: Mapping[Kind, int] = {Kind.COUNTER: 0, Kind.GAUGE: 1, Kind.HISTOGRAM: 4}
_VALUE_FIELDS: Mapping[Kind, int] = {Kind.COUNTER: 3, Kind.GAUGE: 2, Kind.HISTOGRAM: 7}


def protobuf_page(shown: Sequence[Shown]) -> bytes:
    """The page: each family is a message, with its length before it. A family without a series is left out."""
    pages = []
    for family, sampled in shown:
        metric = family.metric
        if metric.kind is Kind.HISTOGRAM:
            values = [(key, _histogram(metric, histogram)) for key, histogram in family.histograms.items()]
        else:
            values = [(key, _double(1, number)) for key, number in {**family.numbers, **sampled}.items()]
        if values:
            message = b"".join(_family(metric, values))
            pages.append(_varint(len(message)) + message)
    return b"".join(pages)


def _family(metric: Metric, values: Sequence[tuple[Key, bytes]]) -> Iterator[bytes]:
    yield _text(1, metric.name.replace(".", "_"))
    yield _text(2, metric.help)
    yield _number(3, _TYPES[metric.kind])
    for key, value in values:
        pairs = zip(metric.labels, key, strict=True)
        labels = (_bytes(1, _text(1, name.replace(".", "_")) + _text(2, text)) for name, text in pairs if text)
        yield _bytes(4, b"".join([*labels, _bytes(_VALUE_FIELDS[metric.kind], value)]))


def _histogram(metric: Metric, histogram: Histogram) -> bytes:
    total = sum(histogram.counts)
    return b"".join(
        [_number(1, total), _double(2, histogram.total), *_buckets(metric, histogram), *_native(histogram, total)]
    )


def _buckets(metric: Metric, histogram: Histogram) -> Iterator[bytes]:
    cumulative, exemplars = 0, histogram.exemplars(metric.bounds)
    for index, (bound, count) in enumerate(zip((*metric.bounds, float("inf")), histogram.counts, strict=True)):
        cumulative += count
        exemplar = _bytes(3, _exemplar(exemplars[index])) if index in exemplars else b""
        yield _bytes(3, _number(1, cumulative) + _double(2, bound) + exemplar)


def _native(histogram: Histogram, total: int) -> Iterator[bytes]:
    """The native buckets, if the histogram has one for each of its values.

    Spans are runs of buckets that follow each other: the first starts at its index, each other one as many buckets after
    the end of the one before. Counts are differences from the bucket before.
    """
    if histogram.zeros + sum(histogram.native.values()) != total:
        return
    yield _signed(5, NATIVE_SCHEMA)
    yield _double(6, ZERO_THRESHOLD)
    yield _number(7, histogram.zeros)
    end, spans, deltas, before = 0, list[list[int]](), b"", 0
    for index in sorted(histogram.native):
        if spans and index == end:
            spans[-1][1] += 1
        else:
            spans.append([index - end, 1])
        end = index + 1
        count = histogram.native[index]
        deltas += _zigzag(count - before)
        before = count
    for offset, length in spans or [[0, 0]]:  # a span, even if it is empty, marks the histogram as native
        yield _bytes(12, _signed(1, offset) + _number(2, length))
    if deltas:
        yield _bytes(13, deltas)
    if histogram.latest is not None and (at := histogram.latest.stream.ended_at()) is not None:
        yield _bytes(16, _exemplar(histogram.latest) + _bytes(3, _time(at)))


def _exemplar(exemplar: Exemplar) -> bytes:
    """An exemplar without its time, which only native histograms need: Prometheus takes the time of the scrape, and
    refuses an exemplar that is older than the last exemplar of its bucket.
    """
    labels = (_bytes(1, _text(1, name) + _text(2, text)) for name, text in exemplar.stream.labels())
    return b"".join(labels) + _double(2, exemplar.value)


def _time(at: float) -> bytes:
    seconds, rest = divmod(round(max(at, 0.0) * 1e9), 10**9)
    return _number(1, seconds) + _number(2, rest)


# Most numbers are small: fields, lengths, counts of few streams.
_SMALL = [bytes((number,)) for number in range(0x80)]


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _zigzag(number: int) -> bytes:
    return _varint(2 * number if number >= 0 else -2 * number - 1)


def _number(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _signed(field: int, number: int) -> bytes:
    return _varint(field << 3) + _zigzag(number)


def _double(field: int, number: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", number)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())
