"""The certificates that the installation presents itself."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.doctor.examined import FAIL, OK, WARN, found, installation, only
from tests.taps.proxy.pki import write


@pytest.mark.parametrize(
    ("days", "level", "says"),
    [(-2, FAIL, "has expired"), (3.2, WARN, "expires in 3 days"), (90.2, OK, "is valid for 90 days")],
)
def test_when_a_certificate_expires(days: float, level: str, says: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    times: dict[str, Any] = {"not_before": now - timedelta(days=9), "not_after": now + timedelta(days=days)}
    certificate = write(tmp_path, "c.pem", trustme.CA().issue_cert("a.example", **times))
    seen = only("certificates", installation("up", tmp_path, tls_certificate=str(certificate)))
    assert (seen.level, says in seen.says, "--tls-certificate" in seen.says) == (level, True, True), seen


def test_a_certificate_that_cannot_be_read_is_left_to_the_settings(tmp_path: Path) -> None:
    assert found("certificates", installation("up", tmp_path, tls_certificate="/no/such")) == []
    assert found("certificates", installation("worker", tmp_path, tls_certificate="/no/such")) == []


def test_the_cure_says_whether_a_running_process_loads_the_new_file(tmp_path: Path) -> None:
    soon: dict[str, Any] = {"not_after": datetime.now(UTC) + timedelta(days=2)}
    certificate = str(write(tmp_path, "c.pem", trustme.CA().issue_cert("a.example", **soon)))
    names = ("tls_certificate", "upstream_certificate", "admin_tls_certificate")
    for name in names:
        seen = only("certificates", installation("up", tmp_path, **{name: certificate}))
        assert ("restart the tap" in seen.cure) == (name == "upstream_certificate"), name
