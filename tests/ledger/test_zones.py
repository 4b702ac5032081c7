"""Time zones by their names, also where a host has no data of zones."""

import zoneinfo
from datetime import UTC

import pytest

from streamgauge.audit.period import DAY_US, DayOf, Period
from streamgauge.errors import UsageFault
from streamgauge.ledger import zones
from streamgauge.ledger.zones import is_zone, zone_of


def test_zones_have_names() -> None:
    assert (zone_of("UTC"), str(zone_of("Europe/Berlin"))) == (UTC, "Europe/Berlin")
    names = ("UTC", "Europe/Berlin", "Mars/Base", "../etc/passwd", "Europe", "", "a\0b")
    assert [is_zone(name) for name in names] == [True, True, False, False, False, False, False]


def test_a_host_without_zone_data_has_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zones, "ZoneInfo", missing)
    period = Period.of("2026-11-01", "2026-11-02", "UTC")
    assert period.until_us - period.since_us == DAY_US
    assert DayOf("UTC")(period.since_us) == "2026-11-01"
    with pytest.raises(UsageFault, match="--timezone Europe/Berlin is not a time zone"):
        Period.of("2026-11-01", "2026-11-02", "Europe/Berlin")
