"""Packet captures -> segments: the packet tap on a file. Captures have real stamps, so records have real times."""

from collections.abc import Iterator, Sequence

from streamgauge.core.capture.segments import Segment
from streamgauge.recorder.protocol import RequestStarted
from streamgauge.recorder.recorder import Recorder
from streamgauge.recorder.request import CaptureSettings
from streamgauge.settings.attributes import Attribute
from streamgauge.taps.packets.files import PcapFault, messages_of
from streamgauge.taps.proxy.capture_gate import named_headers
from streamgauge.taps.replay.contract import BrokenRecording, Readable, Tally
from streamgauge.taps.replay.exchange import TAP

# Messages between two flushes: a packet makes at most one or two, so this is about 300 KiB at the usual sizes.
_AT_ONCE = 256


def segments_of(
    file: Readable, settings: CaptureSettings, tally: Tally, attributes: Sequence[Attribute] = ()
) -> Iterator[Segment]:
    """The segments of a capture's LLM exchanges, interleaved as on the wire. Raises BrokenRecording."""
    recorder, named = Recorder(settings), named_headers(settings.tenant_header, attributes)
    tally.exchanges = 0
    try:
        for number, message in enumerate(messages_of(file, tap=TAP, named=named)):
            tally.exchanges += isinstance(message, RequestStarted)
            recorder.handle(message)
            if number % _AT_ONCE == _AT_ONCE - 1:
                yield from recorder.segments()
    except PcapFault as fault:
        yield from recorder.segments()
        raise BrokenRecording(f"it is damaged: {fault}") from None
    yield from recorder.segments()
