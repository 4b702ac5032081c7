"""A real broker that asks who is there: listeners with TLS and with log-ins, users, and an authorizer that denies by default.

Its plain listener (`bootstrap`) is the administrator's and has all rights. The tests use the other listeners.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from streamgauge.kafka.administrator import Kind, Right
from tests.kafka_broker.broker import NEVER_KILLED, Broker
from tests.kafka_broker.jars import KAFKA_4

# Of the log-in without SCRAM: the broker reads these from its settings, once.
PLAIN_USER, PLAIN_PASSWORD = "plain-user", "plain-secret-4711"
# Who comes with our client certificate, by the broker's rule for names.
CERTIFIED = "certified"

LISTENERS = {
    "SCRAM": "SASL_SSL",
    "PLAIN": "SASL_PLAINTEXT",
    "MUTUAL": "SSL",
    "EXPIRED": "SASL_SSL",
    "ELSEWHERE": "SASL_SSL",
}
_TIMEOUT_S = 30
_KINDS = {Kind.TOPIC: ResourceType.TOPIC, Kind.GROUP: ResourceType.GROUP}


@dataclass(frozen=True)
class Files:
    """PEM files: the broker's authority, another one, and what clients show."""

    ca: Path
    other_ca: Path
    client: Path
    expired_client: Path
    foreign_client: Path


class Secured:
    """The broker. `address` has its listeners; `user` makes one who may do nothing yet."""

    def __init__(self, directory: Path, pom: Path = KAFKA_4) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        authority, other = trustme.CA(), trustme.CA()
        self._authority = authority
        now = datetime.now(UTC)
        past: dict[str, Any] = {"not_before": now - timedelta(days=9), "not_after": now - timedelta(days=2)}
        self.files = Files(
            _authority_in(directory / "ca.pem", authority),
            _authority_in(directory / "other-ca.pem", other),
            written(directory / "client.pem", authority.issue_cert("client.example", common_name=CERTIFIED)),
            written(
                directory / "expired-client.pem", authority.issue_cert("client.example", common_name=CERTIFIED, **past)
            ),
            written(directory / "foreign-client.pem", other.issue_cert("client.example", common_name=CERTIFIED)),
        )
        keys = {
            "SCRAM": written(directory / "server.pem", authority.issue_cert("127.0.0.1")),
            "EXPIRED": written(directory / "expired.pem", authority.issue_cert("127.0.0.1", **past)),
            "ELSEWHERE": written(directory / "elsewhere.pem", authority.issue_cert("broker.example")),
        }
        keys["MUTUAL"] = keys["SCRAM"]
        self.broker = Broker(directory / "broker", NEVER_KILLED | _settings(keys, self.files.ca), pom, LISTENERS)
        self.address = self.broker.addresses
        self.bootstrap = self.broker.bootstrap

    def start(self) -> "Secured":
        """Raises NoBrokerError where there is no Java."""
        self.broker.start()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self

    def user(self, password: str) -> str:
        """A new user, with SCRAM of both sizes."""
        name = f"user-{uuid.uuid4().hex[:8]}"
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            self.set_password(name, password, mechanism)
        return name

    def set_password(self, name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> None:
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
        for done in self._admin.alter_user_scram_credentials([change]).values():
            done.result(_TIMEOUT_S)

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        bindings = [_binding(user, right) for right in dict.fromkeys(rights)]
        for done in self._admin.create_acls(bindings).values():
            done.result(_TIMEOUT_S)

    def deny(self, user: str, right: Right) -> None:
        """Take one right away again."""
        one = _binding(user, right)
        wanted = AclBindingFilter(
            one.restype,
            one.name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for done in self._admin.delete_acls([wanted]).values():
            assert len(done.result(_TIMEOUT_S)) == 1


def _binding(user: str, right: Right) -> AclBinding:
    return AclBinding(
        _KINDS[right.kind],
        right.name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[right.operation.name],
        AclPermissionType.ALLOW,
    )


def _settings(keys: dict[str, Path], authority: Path) -> dict[str, str]:
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f'{plain} user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
        "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": str(authority),
    }
    for name in ("scram", "expired", "elsewhere"):
        settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512"
        settings[f"listener.name.{name}.scram-sha-256.sasl.jaas.config"] = scram
        settings[f"listener.name.{name}.scram-sha-512.sasl.jaas.config"] = scram
    for name, key in keys.items():
        settings[f"listener.name.{name.lower()}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{name.lower()}.ssl.keystore.location"] = str(key)
    return settings


def _authority_in(path: Path, authority: trustme.CA) -> Path:
    authority.cert_pem.write_to_path(path)
    return path


def written(path: Path, signed: trustme.LeafCert) -> Path:
    """Key and certificates in one file; the key as PKCS #8, which is the only form that Kafka reads."""
    key = load_pem_private_key(signed.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem + b"".join(blob.bytes() for blob in signed.cert_chain_pems))
    return path
