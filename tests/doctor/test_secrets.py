"""The modes of files with secrets."""

from pathlib import Path

from tests.doctor.examined import OK, WARN, found, installation, only


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
