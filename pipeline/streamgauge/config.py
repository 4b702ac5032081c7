"""All settings. Each is declared once here; its option, its variable, its key in the file and its reference are made from it.

A value comes from an option, else the environment (STREAMGAUGE_<NAME>), else the settings file (TOML), else the default:
`cli/settings_sources.py`. A part of the program takes a setting under the same name, in a dataclass that `Settings.select`
fills; settings of one part alone are a group, which the part's dataclass inherits. Durations are in seconds, sizes in
bytes. `--help` imports this module, so it imports nothing slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from streamgauge.admin_settings import AdminSettings
from streamgauge.attribute_types import ATTRIBUTE_NAMES, ATTRIBUTES, Attribute
from streamgauge.core.limits import Limits
from streamgauge.ledger_settings import LEDGER_COMMANDS, LEDGER_READERS, TO_LEDGER, LedgerSettings
from streamgauge.proxy_settings import RELAYS as _RELAYS
from streamgauge.proxy_settings import ProxySettings, key_password_file, pem_file
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.state_directory import default_data_dir
from streamgauge.sampling_settings import SamplingSettings
from streamgauge.setting_types import (
    ADDRESS,
    BROKERS,
    DIRECTORY,
    FILE,
    HEADER,
    HOSTS,
    PARTITIONS,
    SERVER_PORTS,
    TOPIC_PREFIX,
    UPSTREAMS,
    ServerPort,
    Setting,
    Upstream,
    choice,
    seconds,
    text,
    whole,
)
from streamgauge.setting_types import declared as _set
from streamgauge.span_settings import SpanSettings

# What the topics have where neither a setting nor an existing topic says otherwise.
DEFAULT_PARTITIONS = 8
DEFAULT_REPLICAS = 3
# A worker's default admin address. It differs from that of a tap, which may run on the same host.
WORKER_ADMIN = Address(host="127.0.0.1", port=9465)

Part = TypeVar("Part")
SpoolPolicy = Literal["drop-newest", "drop-oldest"]

# The commands that take a setting, by their words.
_PACKETS = ("up packets", "tap packets")
_TAPS = (*_RELAYS, *_PACKETS)
_CAPTURES = (*_TAPS, "replay")
_SERVICES = (*_TAPS, "worker")
_ASSEMBLES = (*_SERVICES, "replay")  # a tap does so for its page
_TOPICS = ("topics create", "topics describe")
_REPLAYS = ("replay", "recount")
_DEADLETTER = ("deadletter list", "deadletter show", "deadletter retry")
_KAFKA = ("tap", "tap packets", "worker", *_REPLAYS, *_TOPICS, *_DEADLETTER)

# The sections of help and reference, in their order.
SECTIONS = ("Upstreams", "Clients", "Packets", "Capture", "Kafka", "Storage", "Records", "Operation")
_UPSTREAMS, _CLIENTS, _PACKET_CAPTURE, _CAPTURE, _KAFKA_SECTION, _STORAGE, _RECORDS, _OPERATION = SECTIONS


@dataclass(frozen=True, kw_only=True)
class SpoolSettings:
    """The settings of the spool. The recorder gets all of them."""

    # 1 GiB holds about an hour of 1,000 busy streams, masked and compressed, while a broker is away. The largest value is
    # far more than a disk holds, and within SQLite's limits (1 PiB).
    spool_bytes: int = _set(
        whole(1024**2, 1024**5, unit="bytes"), 1024**3, "largest size of the spool on disk", _TAPS, _STORAGE
    )
    spool_policy: SpoolPolicy = _set(
        choice("drop-newest", "drop-oldest", metavar="POLICY"),
        "drop-newest",
        "what a full spool discards: drop-newest, data that comes, or drop-oldest, data that has waited longest",
        _TAPS,
        _STORAGE,
    )
    # Three days, the retention of the segments topic: an outage over a weekend is delivered whole.
    spool_age: float = _set(seconds(), 259_200.0, "discard data that was not delivered for this long", _TAPS, _STORAGE)


@dataclass(frozen=True, kw_only=True)
class Settings(ProxySettings, SamplingSettings, SpoolSettings, LedgerSettings, AdminSettings, SpanSettings):
    """The value of every setting. `given`: where those come from that are not defaults: name -> option, variable or file.

    `Settings.x` is the default of x, except for `data_dir`; dataclasses of parts take their defaults from it.
    """

    upstream: tuple[Upstream, ...] = _set(
        UPSTREAMS,
        (),
        "provider endpoint, which clients reach at /NAME/...; repeatable; a single URL without NAME is reached without a "
        "prefix, and named by its host",
        _RELAYS,
        _UPSTREAMS,
        required=dict.fromkeys(_RELAYS, "unless --agent is given"),
    )
    listen: Address = _set(
        ADDRESS,
        Address(host="127.0.0.1", port=8080),
        "address at which clients are served",
        (*_RELAYS, "demo"),
        _CLIENTS,
        elsewhere={"demo": "any free port"},
    )
    admin: Address = _set(
        ADDRESS,
        Address(host="127.0.0.1", port=9464),
        "address of /metrics and /health",
        (*_SERVICES, "demo"),
        _OPERATION,
        elsewhere={"worker": str(WORKER_ADMIN), "demo": "any free port"},
    )
    admin_host: tuple[str, ...] = _set(
        HOSTS,
        (),
        "host name by which Prometheus may call --admin, besides addresses and localhost; repeatable",
        (*_SERVICES, "demo"),
        _OPERATION,
    )
    data_dir: Path = _set(
        DIRECTORY,
        default_data_dir,
        "directory for the ledger, for keys, and for the spool: captured data that is not delivered yet",
        (*_SERVICES, "replay", "demo", *LEDGER_COMMANDS),
        _STORAGE,
        default_text="the user's state directory",
        elsewhere={"demo": "temporary"},
    )
    capture: Literal["masked", "full"] = _set(
        choice("masked", "full"),
        "masked",
        "masked: remove generated text before anything is stored; full: keep it",
        _CAPTURES,
        _CAPTURE,
    )
    kafka: str | None = _set(
        BROKERS,
        None,
        "Kafka brokers; one suffices if it is available, since it names the others",
        _KAFKA,
        _KAFKA_SECTION,
        required={command: "" for command in _KAFKA if command not in _REPLAYS},
    )
    kafka_security: str = _set(
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", metavar="PROTOCOL"),
        "PLAINTEXT",
        "protocol of the brokers: PLAINTEXT, SSL (TLS), SASL_SSL (TLS and log-in) or SASL_PLAINTEXT (log-in without TLS)",
        _KAFKA,
        _KAFKA_SECTION,
    )
    kafka_ca: Path | None = pem_file("CAs to trust for brokers", _KAFKA, _KAFKA_SECTION, default_text="the system's")
    kafka_certificate: Path | None = pem_file("a client certificate for brokers", _KAFKA, _KAFKA_SECTION)
    kafka_key: Path | None = pem_file(
        "the private key of --kafka-certificate", _KAFKA, _KAFKA_SECTION, default_text="that file"
    )
    kafka_key_password_file: Path | None = key_password_file("--kafka-key", _KAFKA, _KAFKA_SECTION)
    kafka_mechanism: str = _set(
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", metavar="NAME"),
        "SCRAM-SHA-512",
        "SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        _KAFKA,
        _KAFKA_SECTION,
    )
    kafka_username: str | None = _set(text("NAME"), None, "SASL user name", _KAFKA, _KAFKA_SECTION)
    kafka_password_file: Path | None = _set(
        FILE,
        None,
        "file that contains the SASL password, read for each connection; or set the variable STREAMGAUGE_KAFKA_PASSWORD",
        _KAFKA,
        _KAFKA_SECTION,
    )
    topic_prefix: str = _set(
        TOPIC_PREFIX,
        "streamgauge",
        "beginning of all topic names; also the name of the workers' consumer group",
        _KAFKA,
        _KAFKA_SECTION,
    )
    partitions: int | None = _set(
        PARTITIONS,
        None,
        "partition count: a power of two, at most 64",
        ("topics create",),
        _KAFKA_SECTION,
        default_text=str(DEFAULT_PARTITIONS),
    )
    replicas: int | None = _set(
        whole(1, 1000),
        None,
        "replicas of each new partition",
        ("topics create",),
        _KAFKA_SECTION,
        default_text=f"{DEFAULT_REPLICAS}, or one on each broker if there are fewer",
    )
    workers: int = _set(
        whole(1, 32), 1, "processes that forward traffic: about one for each core that it needs", ("tap",), _OPERATION
    )
    pump: Literal["auto", "off"] = _set(
        choice("auto", "off"),
        "auto",
        "auto: forward responses in C code, if it was built; off: in Python",
        _RELAYS,
        _OPERATION,
    )
    tenant_header: str | None = _set(
        HEADER, None, "request header that names the tenant: a team or a customer", _CAPTURES, _CAPTURE
    )
    attribute: tuple[Attribute, ...] = _set(
        ATTRIBUTES, (), "record the value of a request header as an attribute; repeatable", _CAPTURES, _CAPTURE
    )
    tenants: Path | None = _set(
        FILE,
        None,
        'TOML file that names the tenant of an API key, by lines credential_id = "tenant"; '
        "`ledger query --by credential_id` lists the ids",
        (*_SERVICES, *LEDGER_READERS),
        _CAPTURE,
    )
    upstream_idle_timeout: float = _set(
        seconds(), 900.0, "end a response after this time without a byte from the upstream", _TAPS, _UPSTREAMS
    )
    interface: str | None = _set(
        text("NAME"),
        None,
        "network interface, such as lo or eth0; any: all interfaces",
        _PACKETS,
        _PACKET_CAPTURE,
        required=dict.fromkeys(_PACKETS, "unless --pcap is given"),
    )
    # A setting `port` is impossible: Kubernetes sets STREAMGAUGE_PORT, a URL, in every container next to a service that
    # is named streamgauge.
    server_ports: tuple[ServerPort, ...] = _set(
        SERVER_PORTS,
        (),
        "ports of the model servers, with the NAME of the upstream in records, else ADDRESS:PORT; repeatable; without it a "
        "file is read for all ports",
        _PACKETS,
        _PACKET_CAPTURE,
        required=dict.fromkeys(_PACKETS, "with --interface"),
        option="--port",
        aliases=("--server-ports",),
    )
    pcap: Path | None = _set(
        FILE, None, "pcap or pcapng file to read, instead of --interface", _PACKETS, _PACKET_CAPTURE
    )
    drain_timeout: float = _set(
        seconds(may_be_zero=True),
        30.0,
        "time limit for open streams after SIGTERM or Ctrl-C",
        _SERVICES,
        _OPERATION,
    )
    on_stop: Literal["leave", "stay"] = _set(
        choice("leave", "stay"),
        "leave",
        "on shutdown, leave the consumer group at once, or stay a member for 10 s, so that a restart keeps its partitions",
        ("worker",),
        _KAFKA_SECTION,
    )
    # Written within half a minute, and 240 MiB at most in usual bundles: more than damage makes, less than newer taps would.
    dead_letter_limit: int = _set(
        whole(0, 10**9),
        5_000,
        "stop a partition after this many messages of another version if none could be read for a minute; 0: no limit",
        ("worker",),
        _KAFKA_SECTION,
    )
    segments_id: str = _set(
        text("ID"),
        "",
        "continue although the offsets of the consumer group have expired; the worker's error message gives the ID",
        ("worker",),
        _KAFKA_SECTION,
    )
    abandon_after: float = _set(
        seconds(),
        Limits.abandon_after,
        "close the open streams of a tap that has sent nothing for this long",
        _ASSEMBLES,
        _RECORDS,
    )
    stall_seconds: float = _set(
        seconds(), Limits.stall_seconds, "count a longer pause in a stream's output as a stall", _ASSEMBLES, _RECORDS
    )
    metric_attribute: tuple[str, ...] = _set(
        ATTRIBUTE_NAMES, (), "make an attribute, or `tenant`, a label of metrics; repeatable", TO_LEDGER, _OPERATION
    )
    silent_seconds: float = _set(
        seconds(), Limits.silent_seconds, "how long without output until an open stream is silent", _SERVICES, _RECORDS
    )
    otel_names: Literal["off", "v1.41", "latest"] = _set(
        choice("off", "v1.41", "latest", metavar="VERSION"), "off",
        "show metrics of streams also under OpenTelemetry's names, of this version of its conventions",
        TO_LEDGER, _OPERATION,
    )  # fmt: skip
    given: Mapping[str, str] = field(default_factory=dict)

    def select(self, part: type[Part], **others: Any) -> Part:
        """The settings of a part of the program: an object of the dataclass `part`.

        Its fields that have the name of a setting get the value from here. `others`: the values of its other fields, and of
        settings that differ for this part.
        """
        names = SETTINGS.keys() & {one.name for one in fields(cast("Any", part))}
        return part(**({name: getattr(self, name) for name in names} | others))

    @property
    def ledger_url(self) -> str:
        """The ledger's URL: the first that is set, else a file in the data directory."""
        return self.ledger[0] if self.ledger else f"sqlite:///{self.data_dir / 'ledger.sqlite'}"


def _declarations() -> dict[str, Setting]:
    """In the order of help and reference: those of several parts first, then each group."""
    declared: dict[str, Setting] = {}
    by_name = {one.name: one for one in fields(Settings)}
    for group in (Settings, *Settings.__bases__):
        for name in group.__annotations__:
            if "declared" in by_name[name].metadata:
                *positional, more = by_name[name].metadata["declared"]
                declared[name] = Setting(name, *positional, **more)
    return declared


# Every setting, by name.
SETTINGS = _declarations()
