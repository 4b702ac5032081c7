"""What a process takes from its ledger when it starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgauge.cli.ledger_watch import NEWEST, start_known_upstreams
from streamgauge.ledger import LedgerUnavailableError, open_ledger
from streamgauge.metrics.prometheus import Metrics
from tests.ledger.rows import make_row
from tests.metrics.pages import read_page


def test_counters_of_the_upstreams_in_the_newest_records_begin_at_zero(tmp_path: Path) -> None:
    upstreams = ["forgotten", *["nimbus"] * (NEWEST - 2), None, "sansa"]
    metrics = Metrics()
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite") as ledger:
        start_known_upstreams(metrics, ledger)
        assert read_page(metrics.render()).label_values("upstream") == set()
        ledger.insert([make_row(number, upstream=name) for number, name in enumerate(upstreams)])
        start_known_upstreams(metrics, ledger)
    page = read_page(metrics.render())
    assert page.label_values("upstream") == {"nimbus", "sansa"}
    assert page.value("streamgauge_stream_outcomes_total", upstream="sansa", outcome="upstream_reset") == 0
    assert page.value("streamgauge_transport_errors_total", upstream="nimbus", cause="refused") == 0


def test_a_ledger_that_cannot_be_read_keeps_nothing_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> Iterator[bytes]:
        raise LedgerUnavailableError("the ledger cannot be read: disk I/O error")

    metrics = Metrics()
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite") as ledger:
        monkeypatch.setattr(ledger, "query", unreadable)
        start_known_upstreams(metrics, ledger)
    assert read_page(metrics.render()).label_values("upstream") == set()
