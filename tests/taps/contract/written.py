"""What a tap's messages become: recorder, bundler, bytes of bundles, assembler, records."""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.bundles import decode_bundle, encode_bundle
from streamgauge.core.capture.segments import Bundle, Segment
from streamgauge.core.record import encode_record
from streamgauge.recorder.bundler import Bundler
from streamgauge.recorder.protocol import Message
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from tests.taps import talk
from tests.taps.contract.scenario import TENANT_HEADER

INSTANCE = b"i" * 16
# Messages between two flushes of segments: few and an odd number, so that streams are cut anywhere.
_AT_ONCE = 7


class Written(NamedTuple):
    """`bundles`: everything that a spool would contain, uncompressed; `records`: as readers get them, in the order of
    their ends.
    """

    bundles: bytes
    records: list[dict[str, Any]]


def settings(capture: str) -> CaptureSettings:
    return talk.settings(capture, tenant_header=TENANT_HEADER)


def written(messages: Iterable[Message], capture: str) -> Written:
    """By the real parts, in this process."""
    recorder, segments = Recorder(settings(capture)), []
    for number, message in enumerate(messages):
        recorder.handle(message)
        if number % _AT_ONCE == 0:
            segments += recorder.segments()
    segments += recorder.segments()
    assert recorder.open_streams == 0
    return from_segments(segments)


def from_segments(segments: Iterable[Segment]) -> Written:
    bundler = Bundler(INSTANCE, 0)
    bundler.add(segments, 0)
    return from_bundles(bundler.farewell(0))


def from_bundles(bundles: Iterable[Bundle]) -> Written:
    assembler, content, records = Assembler(), b"", []
    for offset, bundle in enumerate(bundles):
        content += msgspec.msgpack.encode(bundle)
        records += assembler.apply(offset, 0, decode_bundle(encode_bundle(bundle)))
    return Written(content, [json.loads(encode_record(record)) for record in records])
