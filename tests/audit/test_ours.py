"""Our streams, as the search for causes needs them."""

from pathlib import Path

import pytest

from streamgauge.audit.mapping import Mapping
from streamgauge.audit.ours import Ours, OurStream
from streamgauge.audit.period import Period
from streamgauge.ledger import LedgerRow, SqliteLedger
from tests.ledger.rows import make_row
from tests.metrics.records import ABSENT

PERIOD = Period.of("2026-03-01", "2026-03-02", "UTC")


def stream_of(folder: Path, row: LedgerRow) -> OurStream:
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        ledger.insert([row])
        (stream,) = Ours(ledger, PERIOD, Mapping()).streams(lambda _: True)
    return stream


@pytest.mark.parametrize(
    ("status", "outcome", "refused"),
    [
        (200, "completed", False), (200, "client_abort", False), (None, "upstream_reset", False), (429, "completed", True),
        (400, "http_error", True), (None, "http_error", True), (399, "stream_error", False),
    ],
)  # fmt: skip
def test_a_response_that_is_an_error_is_refused(
    status: int | None, outcome: str, refused: bool, tmp_path: Path
) -> None:
    stream = stream_of(tmp_path, make_row(1, usage=ABSENT, status_code=status, outcome=outcome))
    assert stream.is_refused is refused
