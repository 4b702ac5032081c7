"""What counts for records, as totals use it: all continued streams at once."""

from collections.abc import Iterable

from streamgauge.ledger.resumption import Counted, UsagePart, continued_streams, counted


def count_once(parts: Iterable[UsagePart], resumed: Iterable[UsagePart]) -> list[Counted]:
    """The usage that counts for each record that continues a stream or is continued. Other records keep their own usage."""
    return [line for stream in continued_streams(parts, resumed) for line in counted(stream)]
