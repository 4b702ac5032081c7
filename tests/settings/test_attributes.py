"""Names of attributes do not collide with other names of the ledger and of metrics; secrets are no attributes."""

import pytest

from streamgauge.cli.totals_report import SUMS
from streamgauge.core.limits import MAX_ATTRIBUTES
from streamgauge.ledger import KEYS, MEASURES
from streamgauge.ledger.schema import records
from streamgauge.metrics.budgets import reserve_of
from streamgauge.metrics.declarations import LABELS
from streamgauge.metrics.table import TABLE, with_attributes
from streamgauge.recorder.request import _KEY_HEADERS
from streamgauge.settings.attributes import (
    ATTRIBUTE_NAMES,
    ATTRIBUTES,
    MAX_METRIC_ATTRIBUTES,
    REFUSED_HEADERS,
    RESERVED,
    TENANT,
)
from streamgauge.taps.proxy.request import _OURS
from tests.each import each


def test_no_attribute_has_the_name_of_a_key_a_column_or_a_label() -> None:
    labels = {name.replace(".", "_") for name in LABELS}
    assert {*KEYS, *MEASURES, *records.c.keys(), *SUMS, *labels, "le", "quantile", "job", "instance"} <= RESERVED


@each(sorted(RESERVED))
def test_reserved_names_are_refused(name: str) -> None:
    reads = [(ATTRIBUTES.read, f"{name}=x-a")]
    if name != TENANT:  # a label, and no attribute
        reads.append((ATTRIBUTE_NAMES.read, name))
    for read, value in reads:
        with pytest.raises(ValueError, match=f"cannot be named {name}"):
            read(value)


def test_headers_with_credentials_or_framing_are_refused() -> None:
    assert {"authorization", "cookie", *_KEY_HEADERS, *(name.decode() for name in _OURS)} <= REFUSED_HEADERS
    for header in REFUSED_HEADERS:
        with pytest.raises(ValueError, match="cannot be an attribute"):
            ATTRIBUTES.read(f"agent={header.upper()}")


def test_as_many_attributes_as_are_allowed() -> None:
    given = [f"{'a' * 31}{number}=X-A{number}" for number in range(MAX_ATTRIBUTES)]
    assert [one.header for one in ATTRIBUTES.read(given)] == [f"x-a{number}" for number in range(MAX_ATTRIBUTES)]


def test_attributes_need_no_more_series_of_other() -> None:
    names = [f"{'a' * 31}{number}" for number in range(MAX_METRIC_ATTRIBUTES)]
    for metric in TABLE:
        labelled = with_attributes(metric, ATTRIBUTE_NAMES.read(names))
        assert reserve_of(labelled) == reserve_of(metric), metric.name
