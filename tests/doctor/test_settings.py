"""The files that settings name: certificates that the installation presents, and secrets."""

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


def test_files_that_others_can_read(tmp_path: Path) -> None:
    key, password = tmp_path / "key.pem", tmp_path / "password"
    for file in (key, password):
        file.touch(mode=0o600)
    options = {"tls_key": str(key), "kafka_password_file": str(password)}
    assert only("secrets", installation("tap", tmp_path, **options)).level is OK
    password.chmod(0o644)
    seen = only("secrets", installation("tap", tmp_path, **options))
    assert (seen.level, seen.says) == (
        WARN,
        f"every user of this host can read or change --kafka-password-file {password} (mode 0644)",
    )
    assert seen.cure.startswith(f"chmod 600 {password} ")
    assert found("secrets", installation("tap", tmp_path)) == []
    assert only("secrets", installation("tap", tmp_path, tls_key="/no/such")).level is OK, "the settings say it"


def test_a_certificate_s_file_that_holds_the_key_is_a_secret(tmp_path: Path) -> None:
    """A file of the key is optional: without one the certificate's file has it."""
    both, key = tmp_path / "both.pem", tmp_path / "key.pem"
    both.touch(mode=0o644)
    key.touch(mode=0o600)
    for command, name in (
        ("tap", "tls"), ("tap", "upstream"), ("tap", "kafka"), ("tap", "admin_tls"), ("worker", "kafka"),
    ):  # fmt: skip
        options = {f"{name}_certificate": str(both)}
        assert only("secrets", installation(command, tmp_path, **options)).level is WARN, name
        options[f"{name}_key"] = str(key)
        assert only("secrets", installation(command, tmp_path, **options)).level is OK, name


def test_a_file_with_a_header_of_spans_is_a_secret(tmp_path: Path) -> None:
    header = tmp_path / "header"
    header.write_text("authorization=Bearer a")
    header.chmod(0o644)
    settings = installation("worker", tmp_path, otlp="http://h", otlp_header_file=str(header))
    assert only("secrets", settings).level is WARN
