"""The connection to PostgreSQL: to another host it verifies the server, and never continues in plain text."""

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from streamgauge.ledger import LedgerUnavailableError, open_ledger
from streamgauge.ledger.inspection import inspect_ledger
from streamgauge.ledger.postgresql_tls import VERIFIED, tls_of
from tests.doctor.examined import OK, WARN, found, installation
from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.slow

PASSWORD = "the-ledgers-password"
# Codes of the requests for TLS and for GSS encryption (PostgreSQL's protocol, "Message Formats").
ENCRYPTION = {struct.pack("!I", code) for code in (80877103, 80877104)}


@pytest.fixture
def other_host() -> str:
    """An address of this machine that is not loopback, as a database elsewhere has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


class PlainServer:
    """Refuses TLS, asks for the password in plain text, and keeps what it gets: an attacker on the way."""

    def __init__(self, host: str) -> None:
        self._listening = socket.create_server((host, 0))
        self.port = self._listening.getsockname()[1]
        self.startups: list[bytes] = []
        self.passwords: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as sent:
                while head := sent.read(4):
                    message = sent.read(struct.unpack("!I", head)[0] - 4)
                    if message[:4] in ENCRYPTION:
                        connection.sendall(b"N")
                        continue
                    self.startups.append(message)
                    connection.sendall(b"R" + struct.pack("!II", 8, 3))  # AuthenticationCleartextPassword
                    if sent.read(1) == b"p":
                        self.passwords.append(sent.read(struct.unpack("!I", sent.read(4))[0] - 4).rstrip(b"\0"))
                    break

    def close(self) -> None:
        """Accepts no more."""
        self._listening.close()


@pytest.fixture
def attacker(other_host: str) -> Iterator[PlainServer]:
    server = PlainServer(other_host)
    yield server
    server.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(other_host: str, authority: trustme.CA) -> Iterator[PostgresServer]:
    """A PostgreSQL with TLS on an address that is not loopback."""
    issued = authority.issue_cert(other_host)
    started = PostgresServer(other_host, issued.private_key_and_cert_chain_pem.bytes())
    yield started
    started.remove()


def test_the_password_never_crosses_the_network_in_plain_text(
    other_host: str, attacker: PlainServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = f"postgresql://gauge@{other_host}:{attacker.port}/db"
    for opening in (open_ledger, inspect_ledger):
        with pytest.raises(LedgerUnavailableError) as refused:
            opening(url)
        assert "or choose another sslmode" in str(refused.value)
    assert (attacker.startups, attacker.passwords) == ([], [])
    with pytest.raises(LedgerUnavailableError):
        open_ledger(f"{url}?sslmode=prefer")
    assert attacker.passwords == [PASSWORD.encode()], "this server does get what a weaker mode sends"


def test_a_server_whose_certificate_verifies_is_used(
    server: PostgresServer, authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(root))
    with open_ledger(f"{server.url}?sslrootcert={root}") as ledger:
        assert list(ledger.query()) == []
    assert caplog.records == []
    foreign = tmp_path / "foreign.pem"
    trustme.CA().cert_pem.write_to_path(str(foreign))
    with pytest.raises(LedgerUnavailableError, match="certificate verify failed"):
        open_ledger(f"{server.url}?sslrootcert={foreign}")


def test_a_server_whose_certificate_has_another_name_is_refused(
    other_host: str, authority: trustme.CA, tmp_path: Path
) -> None:
    root = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(root))
    issued = authority.issue_cert("another.example")
    server = PostgresServer(other_host, issued.private_key_and_cert_chain_pem.bytes())
    try:
        with pytest.raises(LedgerUnavailableError, match="does not match host name"):
            open_ledger(f"{server.url}?sslrootcert={root}")
        open_ledger(f"{server.url}?sslrootcert={root}&sslmode=verify-ca").close()
    finally:
        server.remove()


def test_a_weaker_mode_that_the_operator_chose_stands_and_is_warned_of(
    server: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{server.url}?sslmode=require"
    open_ledger(url).close()
    (record,) = caplog.records
    assert "sslmode=require, which encrypts, but does not verify which server answers" in record.getMessage()
    (opens, warns) = found("ledger", installation("worker", tmp_path, ledger=url))
    assert (opens.level, warns.level) == (OK, WARN)
    assert "sslmode=require" in warns.says
    assert VERIFIED in warns.cure


@pytest.mark.parametrize(
    "url",
    [
        {"host": "127.0.0.1"},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "/run/postgresql"},
        {"host": "@abstract"},
        {"host": "db", "hostaddr": "127.0.0.1"},
        {},
    ],
)
def test_on_this_machine_the_password_is_not_sent_in_plain_text(url: dict[str, str]) -> None:
    assert tls_of(url) == (None, False, "")
    assert tls_of(url).options == {"require_auth": "!password"}
    assert tls_of({**url, "require_auth": "password"}).options == {}
    assert tls_of({**url, "sslmode": "prefer"}).options == {}


def test_an_attacker_at_the_port_on_loopback_does_not_get_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    attacker = PlainServer("127.0.0.1")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    url = f"postgresql://gauge@127.0.0.1:{attacker.port}/db"
    for opening in (open_ledger, inspect_ledger):
        with pytest.raises(LedgerUnavailableError, match="asks for the password in plain text"):
            opening(url)
    assert attacker.startups and not attacker.passwords
    with pytest.raises(LedgerUnavailableError):
        open_ledger(f"{url}?require_auth=password")
    assert attacker.passwords == [PASSWORD.encode()]
    attacker.close()


@pytest.mark.parametrize(
    "url",
    [
        {"host": "db"},
        {"host": "127.1"},  # not certainly loopback, for all resolvers
        {"host": "localhost,db"},
        {"host": "localhost", "hostaddr": "192.0.2.1"},
        {"host": "localhost.example"},
        {"service": "ledger"},
    ],
)
def test_to_another_host_the_server_is_verified(url: dict[str, str]) -> None:
    assert tls_of(url).options == {"sslmode": VERIFIED}


def test_the_environment_of_libpq_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGHOST", "db")
    assert tls_of({}).options == {"sslmode": VERIFIED}
    assert tls_of({"host": "localhost"}).options == {"require_auth": "!password"}
    monkeypatch.setenv("PGSSLMODE", "prefer")
    mode = tls_of({})
    assert (mode.options, mode.mode) == ({}, "prefer")
    assert "sslmode=prefer" in mode.warning
    monkeypatch.delenv("PGSSLMODE")
    services = tmp_path / "services"
    services.write_text("[ledger]\nhost=db.example\nsslmode=disable\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    monkeypatch.setenv("PGSERVICE", "ledger")
    assert "sslmode=disable" in tls_of({}).warning


def test_modes_that_verify_are_not_warned_of() -> None:
    for mode in ("verify-ca", VERIFIED):
        assert tls_of({"host": "db", "sslmode": mode}) == (mode, True, "")
    for mode in ("disable", "allow", "prefer", "require"):
        assert f"sslmode={mode}" in tls_of({"host": "db", "sslmode": mode}).warning
