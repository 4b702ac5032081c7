"""All settings: from a flag, else the environment (STREAMGAUGE_<NAME>), else the settings file (TOML), else the default.

Frozen and checked at start-up. Durations are in seconds, sizes in bytes. An invalid setting is refused with one sentence
that names it and says what is allowed.
"""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streamgauge.core.assembly.assembler import ABANDON_AFTER_S
from streamgauge.core.assembly.timing import STALL_SECONDS
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.redaction import redacted_item, redacted_value
from streamgauge.taps.proxy.limits import MAX_CONNECTIONS
from streamgauge.taps.proxy.request import MAX_REQUEST_HEAD

ENV_PREFIX = "STREAMGAUGE_"

# A worker's default admin port. It differs from the default of a tap, which may run on the same host.
WORKER_ADMIN_PORT = 9465

# 1 GiB holds about an hour of 1,000 busy streams, masked and compressed, while a broker is away (bytes).
SPOOL_BYTES = 1024**3
# Three days, the retention of the segments topic: an outage over a weekend is delivered whole (seconds).
SPOOL_AGE = 3 * 24 * 3600.0

# A longer time is a typing error, and an infinite one is valid neither in a timer nor in JSON (seconds: a year).
MAX_SECONDS = 366 * 24 * 3600.0
# Far more than a disk holds, and within SQLite's limits (bytes: 1 PiB).
MAX_SPOOL_BYTES = 1024**5

# A request's head is held in memory, so its limit is bounded, too; a limit below 4 KiB would refuse usual clients
# (bytes).
MIN_REQUEST_HEAD = 4 * 1024
MAX_REQUEST_HEAD_SETTING = 1024**2
# A body is passed on as it arrives and takes no memory (bytes: 1 TiB, far more than a prompt).
MAX_BODY_SETTING = 1024**4
# The most that the memory and descriptors of one host can serve.
MAX_CONNECTIONS_SETTING = 1_000_000

# The name of an upstream is a path segment and a metric's label.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A header's name in HTTP (RFC 9110, section 5.6.2).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
# A host name (RFC 1123, section 2.1; with the underscore that container networks use), or an IPv4 address.
_HOST = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_MAX_HOST = 253
# A valid beginning of a Kafka topic name that leaves room for our suffixes (kafka/topics.py).
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
# The beginning of a URL, with one slash or more, such as "http:/user:password@host".
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]")
# Characters that a request line may contain unchanged.
_URL = re.compile("[!-~]+")
_MAX_PORT = 65_535

Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Timeout = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]


class Upstream(BaseModel):
    """A named provider endpoint. With the empty name it is the only one, and requests carry no prefix."""

    model_config = ConfigDict(frozen=True)

    name: str
    url: str


class ServerPort(BaseModel):
    """A port of a server that a packet capture follows; its name is the upstream's, empty for none."""

    model_config = ConfigDict(frozen=True)

    name: str
    port: int


def parse_server_port(text: str, shown: str | None = None) -> ServerPort:
    """NAME=PORT, or PORT. Raises ValueError, which quotes `shown` (default: `text` without a possible password)."""
    name, equals, port = text.rpartition("=")
    if (equals and not _NAME.fullmatch(name)) or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= _MAX_PORT:
        shown = shown or redacted_value(text)
        raise ValueError(f"{shown!r} is not a server port: write PORT or NAME=PORT, as in 8000 or vllm=8000")
    return ServerPort(name=name, port=int(port))


def parse_address(text: str, shown: str | None = None) -> Address:
    """HOST:PORT, or [IPV6]:PORT. Raises ValueError, which quotes `shown` as above."""
    shown = shown or redacted_value(text)
    if "@" in text:
        raise ValueError(f"{shown!r} is not an address: give a host and a port, without user and password")
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ValueError(f"{shown!r} is not an address: write HOST:PORT, as in 127.0.0.1:8080")
    if host.startswith("[") and host.endswith("]"):
        address, percent, zone = host[1:-1].partition("%")
        if not _is_ipv6(address) or (percent and not _HOST.fullmatch(zone)):
            raise ValueError(f"{shown!r} is not an address: write an IPv6 address in the brackets, as in [::1]:8080")
        return Address(host=host[1:-1], port=int(port))
    if ":" in host:
        raise ValueError(f"{shown!r} is not an address: write an IPv6 host in brackets, as in [::1]:8080")
    if host and (len(host) > _MAX_HOST or not _HOST.fullmatch(host)):
        raise ValueError(f"{shown!r} is not an address: its host is not a valid name")
    return Address(host=host or "127.0.0.1", port=int(port))


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def parse_upstream(text: str, shown: str | None = None) -> Upstream:
    """NAME=URL, or URL alone for a single upstream. Raises ValueError, which quotes `shown` as above."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        name, url = "", text
    shown = shown or redacted_value(text)
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"{shown!r}: the name of an upstream may contain only letters, digits, '.', '_' and '-'")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{shown!r} is not a URL: check its host and port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{shown!r} is not an upstream: write NAME=URL, as in openai=https://api.openai.com")
    if parts.username is not None or parts.query or parts.fragment or not _URL.fullmatch(url):
        raise ValueError(f"the upstream {shown!r} may contain only a scheme, host, port and path")
    if ":" not in parts.hostname and not _HOST.fullmatch(parts.hostname):
        raise ValueError(f"the upstream {shown!r} has no valid host name")
    return Upstream(name=name, url=url.rstrip("/"))


def default_data_dir() -> Path:
    """The platform's state directory for users."""
    return Path(platformdirs.user_state_dir("streamgauge", appauthor=False))


_PEM_FILES = ("tls_certificate", "tls_key", "upstream_ca", "upstream_certificate", "upstream_key")
_KAFKA_FILES = ("kafka_ca", "kafka_certificate", "kafka_key", "kafka_password_file")


class Settings(BaseSettings):
    """Every setting, with what it means. The name in the environment is STREAMGAUGE_ and the upper-case name."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    upstream: Annotated[tuple[Upstream, ...], NoDecode] = Field(
        (), description="provider endpoints, NAME=URL; an agent has none"
    )
    listen: Annotated[Address, NoDecode] = Field(
        Address(host="127.0.0.1", port=8080), description="address for clients"
    )
    admin: Annotated[Address, NoDecode] = Field(
        Address(host="127.0.0.1", port=9464), description="address of metrics and health"
    )
    admin_host: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="additional Host headers that the admin port accepts"
    )
    data_dir: Path = Field(default_factory=default_data_dir, description="directory for spool, ledger and keys")
    capture: Literal["masked", "full"] = Field("masked", description="redact or keep generated text")
    kafka: str | None = Field(None, description="bootstrap brokers, HOST:PORT[,...]")
    kafka_security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = Field(
        None, description="protocol for brokers; default: PLAINTEXT, without login"
    )
    kafka_ca: Path | None = Field(None, description="PEM file: CAs to trust for brokers; default: the system's")
    kafka_certificate: Path | None = Field(None, description="PEM file: client certificate for brokers")
    kafka_key: Path | None = Field(None, description="PEM file: private key of kafka_certificate; default: that file")
    kafka_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, description="SASL mechanism; default: SCRAM-SHA-512"
    )
    kafka_username: str | None = Field(None, description="SASL user name")
    kafka_password_file: Path | None = Field(None, description="file with the SASL password, read at each connection")
    topic_prefix: str = Field("streamgauge", description="prefix of all topic names")
    partitions: int | None = Field(
        None, ge=1, le=64, description="for `topics create`: partition count, a power of two, at most 64"
    )
    replicas: int | None = Field(None, ge=1, le=1000, description="for `topics create`: replicas of each new topic")
    workers: int = Field(1, ge=1, le=32, description="relay processes of a tap")
    pump: Literal["auto", "off"] = Field(
        "auto", description="forward responses in native C code: if it was built, or off"
    )
    ledger: str | None = Field(None, description="sqlite:///FILE")
    spool_bytes: int = Field(
        SPOOL_BYTES, ge=1024**2, le=MAX_SPOOL_BYTES, description="size limit of the spool on disk (bytes)"
    )
    spool_policy: Literal["drop-newest", "drop-oldest"] = Field(
        "drop-newest", description="the reads to discard when the spool is full"
    )
    spool_age: Timeout = Field(SPOOL_AGE, description="discard reads that are not delivered after so many seconds")
    tenant_header: str | None = Field(None, description="request header that names the tenant")
    tenants: Path | None = Field(None, description="TOML file of lines credential_id = tenant")
    upstream_idle_timeout: Timeout = Field(900.0, description="end a stream after so many seconds without a byte")
    connect_timeout: Timeout = Field(10.0, description="time limit to connect to an upstream (seconds)")
    tls_certificate: Path | None = Field(
        None, description="PEM file: certificate for clients; without it the tap serves plain HTTP"
    )
    tls_key: Path | None = Field(None, description="PEM file: private key of tls_certificate; default: that file")
    upstream_ca: Path | None = Field(None, description="PEM file: additional CAs to trust for https upstreams")
    upstream_certificate: Path | None = Field(None, description="PEM file: client certificate for https upstreams")
    upstream_key: Path | None = Field(
        None, description="PEM file: private key of upstream_certificate; default: that file"
    )
    max_request_head: int = Field(
        MAX_REQUEST_HEAD,
        ge=MIN_REQUEST_HEAD,
        le=MAX_REQUEST_HEAD_SETTING,
        description="limit of a request's line and headers (bytes)",
    )
    max_request_body: int | None = Field(
        None, ge=1, le=MAX_BODY_SETTING, description="limit of a request's body (bytes); default: none"
    )
    max_connections: int = Field(
        MAX_CONNECTIONS, ge=1, le=MAX_CONNECTIONS_SETTING, description="limit of client connections of a tap"
    )
    max_connections_per_address: int | None = Field(
        None,
        ge=1,
        le=MAX_CONNECTIONS_SETTING,
        description="limit of client connections from one address; default: 3/4 of max_connections",
    )
    interface: str | None = Field(None, description="network interface that a packet tap captures on")
    server_ports: Annotated[tuple[ServerPort, ...], NoDecode] = Field(
        (), description="ports of the model servers that a packet tap captures, [NAME=]PORT"
    )
    pcap: Path | None = Field(None, description="capture file that a packet tap reads instead of an interface")
    drain_timeout: Seconds = Field(30.0, description="time limit for open streams after SIGTERM (seconds)")
    on_stop: Literal["leave", "stay"] = Field(
        "leave",
        description="on shutdown, a worker leaves the consumer group at once, or stays a member for 10 s so that a restart "
        "keeps its partitions",
    )
    segments_id: str = Field(
        "", description="ID of the segments topic; lets workers continue after the group's offsets have expired"
    )
    abandon_after: Timeout = Field(
        ABANDON_AFTER_S,
        description="close a tap's open streams after this many seconds without a message from it",
    )
    stall_seconds: Timeout = Field(STALL_SECONDS, description="count longer gaps between token events as stalls")

    @field_validator("upstream", mode="before")
    @classmethod
    def _upstreams(cls, value: object) -> object:
        items = tuple(
            parse_upstream(item, redacted_item(item, value)) if isinstance(item, str) else item
            for item in _items(value)
        )
        if not all(isinstance(item, Upstream) for item in items):
            raise ValueError("write NAME=URL, or a list of these, as in ['openai=https://api.openai.com']")
        return items

    @field_validator("upstream")
    @classmethod
    def _named_once(cls, value: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
        names = [upstream.name for upstream in value]
        if len(set(names)) != len(names):
            raise ValueError(
                "two upstreams have the same name: name them apart, as in --upstream a=URL --upstream b=URL"
            )
        if len(names) > 1 and "" in names:
            raise ValueError(
                "each of several upstreams requires a name, as in --upstream openai=https://api.openai.com"
            )
        return value

    @field_validator("server_ports", mode="before")
    @classmethod
    def _server_ports(cls, value: object) -> object:
        items = [value] if isinstance(value, str) else _items(value)
        given = [(part, one) for one in items for part in (_items(one) if isinstance(one, str) else [one])]
        ports = tuple(
            part if isinstance(part, ServerPort) else parse_server_port(str(part), redacted_item(str(part), whole))
            for part, whole in given
        )
        if len({one.port for one in ports}) != len(ports):
            raise ValueError("a port is given twice: give each port once")
        return ports

    @field_validator("admin_host", mode="before")
    @classmethod
    def _hosts(cls, value: object) -> object:
        return tuple(_items(value))

    @field_validator("listen", "admin", mode="before")
    @classmethod
    def _address(cls, value: object) -> object:
        return value if isinstance(value, Address) else parse_address(str(value))

    @field_validator("kafka")
    @classmethod
    def _brokers(cls, value: str | None) -> str | None:
        if value is None:
            return None
        brokers = [broker.strip() for broker in value.split(",")]
        for broker in brokers:
            shown = redacted_item(broker, value)
            if broker.startswith(":") or parse_address(broker, shown).port == 0:
                raise ValueError(f"{shown!r} is not a broker: write HOST:PORT[,HOST:PORT...]")
        return ",".join(brokers)

    @field_validator("kafka_security", "kafka_mechanism", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.strip().upper() if isinstance(value, str) else value

    @field_validator("topic_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if not _TOPIC_PREFIX.fullmatch(value):
            shown = redacted_value(value)
            raise ValueError(f"{shown!r} is not a topic prefix: use at most 100 letters, digits, '.', '_' and '-'")
        return value

    @field_validator("partitions")
    @classmethod
    def _power_of_two(cls, value: int | None) -> int | None:
        if value is not None and value & (value - 1):
            raise ValueError(f"{value} is not allowed: the partition count must be a power of two, at most 64")
        return value

    @field_validator("tenant_header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        if value is not None and not _HEADER.fullmatch(value):
            raise ValueError(f"{redacted_value(value)!r} is not a header name")
        return value

    @field_validator("data_dir", "tenants", *_PEM_FILES, *_KAFKA_FILES, "pcap", mode="before")
    @classmethod
    def _home(cls, value: object) -> object:
        if not isinstance(value, str | Path):
            return value
        if not str(value) or "\0" in str(value):
            raise ValueError("the path is empty" if not str(value) else "the path contains a NUL character")
        if SCHEME.match(str(value)):
            raise ValueError("give a path, not a URL")
        if "-----BEGIN" in str(value):
            raise ValueError("give the path of a file, not its content")
        try:
            return Path(value).expanduser().absolute()
        except RuntimeError:
            raise ValueError(f"{redacted_value(str(value))!r}: there is no home directory of that user") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        given = dict(init_settings()) if isinstance(init_settings, InitSettingsSource) else {}
        file = given.pop("settings_file", None)
        sources: tuple[PydanticBaseSettingsSource, ...] = (InitSettingsSource(settings_cls, given), env_settings)
        return sources if file is None else (*sources, TomlConfigSettingsSource(settings_cls, file))

    @property
    def ledger_url(self) -> str:
        """The ledger's URL: as set, else a file in the data directory."""
        return self.ledger or f"sqlite:///{self.data_dir / 'ledger.sqlite'}"


def _items(value: object) -> list[Any]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]
