"""Who may use the admin port, by the settings: what is refused at the start, and that the token stays in this process."""

import os
from pathlib import Path

import pytest

from streamgauge.cli.admin_port import TOKEN_VARIABLE, admin_access
from streamgauge.errors import USAGE, UsageFault
from streamgauge.metrics.admin_access import Access
from streamgauge.settings.sources import load
from streamgauge.settings.types import ENV_PREFIX
from tests.running import here
from tests.taps.proxy.pki import make_pki

TOKEN = "0123456789abcdef-secret"


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(f"{ENV_PREFIX}ADMIN")]:
        monkeypatch.delenv(name)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


def access(*warned: list[str], **options: object) -> Access:
    return admin_access(load(options), warned[0].append if warned else lambda _: None)


@pytest.mark.parametrize("admin", ["127.0.0.1:0", "127.8.8.8:0", "[::1]:0", "localhost:0", "LOCALHOST.:0", ":9464"])
def test_on_loopback_no_token_is_needed(admin: str) -> None:
    assert access(admin=admin) == Access()


@pytest.mark.parametrize(
    "admin", ["0.0.0.0:9464", "[::]:0", "10.1.2.3:1", "[fe80::1%eth0]:0", "tap-1.internal:9464", "localhost.example:1"]
)
def test_elsewhere_it_is_refused_without_a_token_unless_it_is_open(
    admin: str, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageFault, match="give a token with --admin-token-file") as refused:
        access(admin=admin)
    assert "--admin-open" in str(refused.value)
    assert str(load({"admin": admin}).admin) in str(refused.value)
    assert access(admin=admin, admin_open=True) == Access()
    found = access(admin=admin, admin_token_file=str(token_file)).token
    assert found is not None
    assert found.accepts(f"Bearer {TOKEN}")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert access(admin=admin).token is not None
    assert TOKEN_VARIABLE not in os.environ


@pytest.mark.parametrize("command", ["up", "tap", "worker", "up packets"])
def test_every_command_with_an_admin_port_refuses(command: str, tmp_path: Path) -> None:
    given = {
        "up": ["--upstream", "http://127.0.0.1:1"],
        "tap": ["--upstream", "http://127.0.0.1:1", "--kafka", "127.0.0.1:1"],
        "worker": ["--kafka", "127.0.0.1:1"],
        "up packets": ["--pcap", str(tmp_path / "some.pcap")],
    }[command]
    (tmp_path / "some.pcap").touch()
    data = tmp_path / "data"
    listen = [] if command in ("worker", "up packets") else ["--listen", "127.0.0.1:0"]
    done = here(*command.split(), *given, *listen, "--admin", "0.0.0.0:0", "--data-dir", str(data))
    assert done.returncode == USAGE, done.stderr
    assert "other hosts can reach the admin port 0.0.0.0:0" in done.stderr
    assert not (data / "spool.sqlite").exists()


def test_contradictions_are_refused(token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with pytest.raises(UsageFault, match="--admin-open has no effect with a token"):
        access(admin_open=True)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with pytest.raises(UsageFault, match="the token is given twice"):
        access(admin_token_file=str(token_file))
    with pytest.raises(UsageFault, match="--admin-tls-key requires --admin-tls-certificate"):
        access(admin_tls_key=str(tmp_path / "key.pem"))
    with pytest.raises(UsageFault, match="--admin-tls-key-password-file requires --admin-tls-certificate"):
        access(admin_tls_key_password_file=str(tmp_path / "password"))


def test_unusable_tokens_and_certificates_are_named_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = tmp_path / "weak"
    weak.write_text("a-weak-one")
    with pytest.raises(UsageFault, match="--admin-token-file: the token is not one of at least 16") as refused:
        access(admin_token_file=str(weak))
    assert "a-weak-one" not in str(refused.value)
    monkeypatch.setenv(TOKEN_VARIABLE, "a-weak-one")
    with pytest.raises(UsageFault, match=f"{TOKEN_VARIABLE}: the token is not one") as refused:
        access()
    assert "a-weak-one" not in str(refused.value)
    with pytest.raises(UsageFault, match=r"--admin-token-file: the token file .* cannot be read"):
        access(admin_token_file=str(tmp_path / "missing"))
    with pytest.raises(UsageFault, match=r"--admin-tls-certificate: the certificate .* cannot be used"):
        access(admin_tls_certificate=str(weak))


def test_a_certificate_makes_the_port_https(tmp_path: Path) -> None:
    assert access(admin_tls_certificate=str(make_pki(tmp_path).server)).scheme == "https"
    assert access().scheme == "http"


def test_a_token_that_crosses_the_network_in_plain_text_is_a_warning(tmp_path: Path, token_file: Path) -> None:
    certificate, token = str(make_pki(tmp_path).server), str(token_file)
    Path(certificate).chmod(0o600)  # it holds the key, too
    warned: list[str] = []
    access(warned, admin="127.0.0.1:1", admin_token_file=token)
    access(warned, admin="0.0.0.0:1", admin_token_file=token, admin_tls_certificate=certificate)
    access(warned, admin="0.0.0.0:1", admin_open=True)
    assert warned == []
    access(warned, admin="0.0.0.0:1", admin_token_file=token)
    assert len(warned) == 1
    assert "0.0.0.0:1 crosses the network in plain text: give the port a certificate" in warned[0]
