"""From settings to brokers: each setting must have an effect, and none leads to plain text by mistake."""

import os
from pathlib import Path

import pytest

from streamgauge.cli.kafka_options import PASSWORD_VARIABLE, brokers_of
from streamgauge.errors import UsageFault
from streamgauge.kafka.security import Mechanism, Protocol
from streamgauge.settings.sources import load
from tests.running import command

pytestmark = pytest.mark.slow

SECRET = "a-secret-nobody-may-see"


@pytest.fixture
def password(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text(SECRET)
    return str(file)


def test_an_address_alone_is_plain_text() -> None:
    assert brokers_of(load({"kafka": "b:1"})).protocol is Protocol.PLAINTEXT


def test_all_settings_are_passed_on(password: str) -> None:
    given = {"kafka": "b:1", "kafka_security": "sasl_ssl", "kafka_username": "u", "kafka_password_file": password}
    brokers = brokers_of(load(given))
    assert (brokers.bootstrap, brokers.protocol) == ("b:1", Protocol.SASL_SSL)
    assert brokers.login is not None
    assert brokers.login.mechanism is Mechanism.SCRAM_SHA_512
    assert brokers.login.password.now() == SECRET
    plain = brokers_of(load({**given, "kafka_security": "SASL_PLAINTEXT", "kafka_mechanism": "plain"}))
    assert plain.protocol is Protocol.SASL_PLAINTEXT
    assert plain.login is not None
    assert plain.login.mechanism is Mechanism.PLAIN


def test_a_password_of_the_environment_is_given_to_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, SECRET)
    brokers = brokers_of(load({"kafka": "b:1", "kafka_security": "SASL_SSL", "kafka_username": "u"}))
    assert brokers.login is not None
    assert brokers.login.password.now() == SECRET
    assert PASSWORD_VARIABLE not in os.environ


BAD: dict[str, tuple[dict[str, str], str]] = {
    "an authority and no protocol": ({"kafka_ca": "/x"}, "--kafka-ca requires --kafka-security"),
    "a user and no protocol": ({"kafka_username": "u"}, "--kafka-username requires --kafka-security"),
    "a mechanism and no protocol": ({"kafka_mechanism": "PLAIN"}, "--kafka-mechanism requires --kafka-security"),
    "an authority in plain text": (
        {"kafka_ca": "/x", "kafka_security": "SASL_PLAINTEXT"},
        "--kafka-ca has no effect with --kafka-security SASL_PLAINTEXT",
    ),
    "a user without a log-in": (
        {"kafka_username": "u", "kafka_security": "SSL"},
        "--kafka-username has no effect with --kafka-security SSL",
    ),
    "a key alone": ({"kafka_key": "/x", "kafka_security": "SSL"}, "--kafka-key requires --kafka-certificate"),
    "a password of a key alone": (
        {"kafka_key_password_file": "/x", "kafka_security": "SSL"},
        "--kafka-key-password-file requires --kafka-certificate",
    ),
    "no user": ({"kafka_security": "SASL_SSL"}, "--kafka-username is missing"),
    "no password": ({"kafka_security": "SASL_SSL", "kafka_username": "u"}, "the password is missing"),
    "no such file": (
        {"kafka_security": "SASL_SSL", "kafka_username": "u", "kafka_password_file": "/no/such"},
        "the password file cannot be read: No such file",
    ),
    "no such authority": ({"kafka_security": "SSL", "kafka_ca": "/no/such"}, "/no/such cannot be used"),
}


def test_a_missing_broker_is_refused_with_the_flag() -> None:
    with pytest.raises(UsageFault, match="--kafka HOST:PORT is missing"):
        brokers_of(load({}))


@pytest.mark.parametrize("case", BAD)
def test_invalid_settings_are_one_sentence(case: str) -> None:
    given, says = BAD[case]
    with pytest.raises(UsageFault, match=says) as refused:
        brokers_of(load({"kafka": "b:1", **given}))
    assert "\n" not in str(refused.value)


def test_two_passwords_or_one_without_a_user_name(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"kafka": "b:1", "kafka_security": "SASL_SSL", "kafka_username": "u", "kafka_password_file": password}
    monkeypatch.setenv(PASSWORD_VARIABLE, SECRET)
    with pytest.raises(UsageFault, match="is given twice") as refused:
        brokers_of(load(both))
    assert SECRET not in str(refused.value)
    monkeypatch.setenv(PASSWORD_VARIABLE, SECRET)
    with pytest.raises(UsageFault, match=f"{PASSWORD_VARIABLE} requires --kafka-security"):
        brokers_of(load({"kafka": "b:1"}))


@pytest.mark.parametrize("name", ["tap", "worker", "topics", "replay"])
def test_each_command_prints_it_and_ends_with_2(tmp_path: Path, name: str) -> None:
    words = {
        "tap": ["tap", "--agent", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path)],
        "worker": ["worker", "--admin", "127.0.0.1:0", "--data-dir", str(tmp_path)],
        "topics": ["topics", "describe"],
        "replay": ["replay"],
    }[name]
    done = command(*words, "--kafka", "127.0.0.1:1", "--kafka-ca", "/no/such")
    assert done.returncode == 2
    assert done.stdout == ""
    # The worker logs lines of JSON.
    last = done.stderr.splitlines()[-1].removesuffix('"}')
    assert last.endswith("--kafka-ca requires --kafka-security (SSL, SASL_SSL or SASL_PLAINTEXT)")
    assert "Traceback" not in done.stderr


def test_there_is_no_flag_for_a_password() -> None:
    done = command("topics", "describe", "--kafka", "b:1", "--kafka-password", SECRET)
    assert done.returncode == 2
