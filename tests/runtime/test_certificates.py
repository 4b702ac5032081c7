"""A key with a password: the password comes from its file, whenever the key is loaded."""

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from streamgauge.kafka.security import Brokers, TlsFiles
from streamgauge.runtime.certificates import ServerCertificate, load_certificate
from streamgauge.taps.proxy.tls import upstream_context

PASSWORD = "CANARY"


class Locked:
    """A certificate, its key with a password, and the password's file."""

    def __init__(self, folder: Path, password: str = PASSWORD) -> None:
        self.certificate, self.key, self.password = folder / "c.pem", folder / "k.pem", folder / "password"
        signed = trustme.CA().issue_cert("a.example")
        signed.cert_chain_pems[0].write_to_path(self.certificate)
        key = load_pem_private_key(signed.private_key_pem.bytes(), None)
        locked = BestAvailableEncryption(password.encode())
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        self.password.write_text(f"{password}\n")

    @property
    def files(self) -> tuple[Path, Path, Path]:
        return self.certificate, self.key, self.password


def test_each_part_loads_a_key_with_its_password(tmp_path: Path) -> None:
    locked = Locked(tmp_path)
    ServerCertificate(*locked.files)
    upstream_context(None, *locked.files)
    Brokers("b:1", TlsFiles(None, *locked.files))


def test_a_renewed_key_may_have_another_password(tmp_path: Path) -> None:
    ours = ServerCertificate(*Locked(tmp_path).files)
    Locked(tmp_path, "another")
    assert ours.renew()
    assert not ours.renew()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("wrong", r"cannot be used: .*; if the key is right, check its password in .*password$"),
        (None, "the password file .* cannot be read: No such file"),
        ("", "does not contain exactly one line"),
    ],
)
def test_a_wrong_or_missing_password_is_one_sentence(tmp_path: Path, written: str | None, says: str) -> None:
    locked = Locked(tmp_path)
    locked.password.unlink()
    if written is not None:
        locked.password.write_text(written)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with pytest.raises(ValueError, match=says) as refused:
        load_certificate(context, *locked.files)
    assert PASSWORD not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_key_without_its_password_does_not_ask_the_terminal(tmp_path: Path) -> None:
    locked = Locked(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with pytest.raises(ValueError, match=r"is encrypted: give its password with the option \.\.\.-key-password-file"):
        load_certificate(context, locked.certificate, locked.key)
