"""All settings. Each is declared once here; its option, its variable, its key in the file and its reference are made from it.

A value comes from an option, else the environment (STREAMGAUGE_<NAME>), else the settings file (TOML), else the default:
`settings/sources.py`. A part of the program takes a setting under the same name, in a dataclass that `Settings.select`
fills; settings of one part alone are a group, which the part's dataclass inherits. Durations are in seconds, sizes in
bytes. `--help` imports this module, so it imports nothing slow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from streamgauge.core.limits import Limits
from streamgauge.runtime.data_directory import default_data_dir
from streamgauge.runtime.listeners import Address
from streamgauge.settings.attributes import ATTRIBUTE_NAMES, ATTRIBUTES, Attribute
from streamgauge.settings.types import (
    ADDRESS,
    BROKERS,
    DIRECTORY,
    FILE,
    HEADER,
    HOSTS,
    LEDGERS,
    PARTITIONS,
    SERVER_PORTS,
    SHARE,
    SPAN_HEADERS,
    SPAN_RECEIVER,
    TOKENIZER_FILES,
    TOPIC_PREFIX,
    UPSTREAMS,
    ServerPort,
    Setting,
    SpanHeader,
    TokenizerFile,
    Upstream,
    choice,
    order,
    seconds,
    switch,
    text,
    whole,
)
from streamgauge.settings.types import declared as _set

# What the topics have where neither a setting nor an existing topic says otherwise.
DEFAULT_PARTITIONS = 8
DEFAULT_REPLICAS = 3
# A worker's default admin address. It differs from a tap's, since both may run on one host.
WORKER_ADMIN = Address(host="127.0.0.1", port=9465)

Part = TypeVar("Part")
SpoolPolicy = Literal["drop-newest", "drop-oldest"]

# The commands that take a setting, by their words.
_RELAYS = ("up", "tap")
_PACKETS = ("up packets", "tap packets")
_ENVOY = ("up envoy", "tap envoy")
_TAPS = (*_RELAYS, *_PACKETS, *_ENVOY)
_CAPTURES = (*_TAPS, "replay")
_SERVICES = (*_TAPS, "worker")
_ASSEMBLES = (*_SERVICES, "replay")  # a tap does so for its page
_TOPICS = ("topics create", "topics describe")
_REPLAYS = ("replay", "recount")
_DEADLETTER = ("deadletter list", "deadletter show", "deadletter retry")
_ADMIN = (*_SERVICES, "demo")
# The commands that make records, those that read a ledger, and all that only use one.
_LOCAL = ("up", "up packets", "up envoy")
TO_LEDGER = (*_LOCAL, "worker")
LEDGER_READERS = ("ledger query", "ledger show", "ledger export", "ledger budgets")
AUDIT_COMMANDS = ("audit", "audit list", "audit show", "audit diff", "audit claim")
LEDGER_COMMANDS = (*LEDGER_READERS, "ledger import", "ledger price", "ledger costs", *AUDIT_COMMANDS)
_KAFKA = ("tap", "tap packets", "tap envoy", "worker", *_REPLAYS, *_TOPICS, *_DEADLETTER)

# The sections of help and reference, in their order.
SECTIONS = ("Upstreams", "Clients", "Packets", "Capture", "Kafka", "Storage", "Records", "Operation")
_UPSTREAMS, _CLIENTS, _PACKET_CAPTURE, _CAPTURE, _KAFKA_SECTION, _STORAGE, _RECORDS, _OPERATION = SECTIONS


_DAY_S = 24 * 3600


def _pem_file(content: str, commands: tuple[str, ...], section: str, **more: Any) -> Any:
    """A field for the path of a PEM file with this content."""
    return _set(FILE, None, f"PEM file of {content}", commands, section, **more)


def _key_password_file(key: str, commands: tuple[str, ...], section: str) -> Any:
    """A field for the path of a file with the password of a private key."""
    about = f"file that contains the password of {key}, read when the key is loaded"
    return _set(FILE, None, about, commands, section)


@dataclass(frozen=True, kw_only=True)
class ProxySettings:
    """The settings that only the relays of the proxy use. Each relay gets all of them."""

    connect_timeout: float = _set(seconds(), 10.0, "time limit for connecting to an upstream", _RELAYS, _UPSTREAMS)
    upstream_ca: Path | None = _pem_file("CAs to trust for https upstreams, besides the system's", _RELAYS, _UPSTREAMS)
    upstream_certificate: Path | None = _pem_file("a client certificate for https upstreams", _RELAYS, _UPSTREAMS)
    upstream_key: Path | None = _pem_file(
        "the private key of --upstream-certificate", _RELAYS, _UPSTREAMS, default_text="that file"
    )
    upstream_key_password_file: Path | None = _key_password_file("--upstream-key", _RELAYS, _UPSTREAMS)
    tls_certificate: Path | None = _pem_file(
        "the certificate with which clients are served over TLS; reloaded when it changes", _RELAYS, _CLIENTS
    )
    tls_key: Path | None = _pem_file(
        "the private key of --tls-certificate", _RELAYS, _CLIENTS, default_text="that file"
    )
    tls_key_password_file: Path | None = _key_password_file("--tls-key", _RELAYS, _CLIENTS)
    tls_client_ca: Path | None = _pem_file(
        "the CAs whose certificates clients must present in TLS; a client without one is refused", _RELAYS, _CLIENTS
    )
    client_token_file: Path | None = _set(
        FILE,
        None,
        'TOML file of the tokens that clients must send, by lines name = "token"; read again when it changes',
        _RELAYS,
        _CLIENTS,
    )
    strip_attributes: bool = _set(
        switch(), False, "do not pass the headers of --attribute on to upstreams", _RELAYS, _CAPTURE
    )
    # A request's head is held in memory, so its limit is bounded, too; a limit below 4 KiB would refuse usual clients.
    # The default is more than nginx allows (32 KiB): long cookies and trace headers fit, a flood does not.
    max_request_head: int = _set(
        whole(4 * 1024, 1024**2, unit="bytes"),
        64 * 1024,
        "largest headers of a request; larger ones are answered with 431",
        _RELAYS,
        _CLIENTS,
    )
    # A body is passed on as it arrives and takes no memory (1 TiB is far more than a prompt).
    max_request_body: int | None = _set(
        whole(1, 1024**4, unit="bytes"),
        None,
        "largest body of a request; larger ones are answered with 413",
        _RELAYS,
        _CLIENTS,
        default_text="no limit",
    )
    # A million is the most that the memory and descriptors of one host can serve. The default takes 40 MiB when its
    # connections are idle, and some GiB at the very worst (docs/security.md: what one connection may hold). It fits into
    # 20,000 descriptors.
    max_connections: int = _set(
        whole(1, 1_000_000), 6_000, "most client connections at a time; further ones wait", _RELAYS, _CLIENTS
    )
    max_connections_per_address: int | None = _set(
        whole(1, 1_000_000),
        None,
        "most client connections from one address; further ones are closed",
        _RELAYS,
        _CLIENTS,
        default_text="3/4 of --max-connections",
    )


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Which streams the recorder captures in full, and whose they are."""

    full_share: float = _set(
        SHARE,
        1.0,
        "with --capture full: the part of the streams whose text is kept; others are masked, and each stream has a record",
        _TAPS,
        _CAPTURE,
    )
    # A client can write any header, but it has only the API keys that it was given.
    tenant_source: tuple[str, ...] = _set(
        order("client", "credential", "header"),
        ("credential", "header"),
        "where a request's tenant comes from, the first source that has one: `client`, the name of the authenticated client, "
        "`credential`, the API key's entry in --tenants, or `header`, --tenant-header",
        _TAPS,
        _CAPTURE,
        default_text="credential,header",
    )


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
class LedgerSettings:
    """The settings of the ledger."""

    ledger: tuple[str, ...] = _set(
        LEDGERS,
        (),
        "database of the records: sqlite:///FILE or postgresql://USER@HOST/DATABASE; repeatable where it is only read",
        (*TO_LEDGER, *LEDGER_COMMANDS),
        _STORAGE,
        default_text="DATA_DIR/ledger.sqlite",
        secret=True,
    )
    ledger_file: Path | None = _set(
        FILE,
        None,
        "file that contains the URL of --ledger, which may hold a password; read once",
        (*TO_LEDGER, *LEDGER_COMMANDS),
        _STORAGE,
        content_of="ledger",
    )
    # A longer time than a century is a typing error.
    ledger_age: int | None = _set(
        whole(_DAY_S, 100 * 366 * _DAY_S, unit="seconds"),
        None,
        "delete the records of streams that started longer ago than this",
        TO_LEDGER,
        _STORAGE,
        default_text="no limit, nothing is deleted",
    )
    # An empty ledger has some 100 KB; the largest value is far more than a disk holds.
    ledger_bytes: int | None = _set(
        whole(1024**2, 1024**5, unit="bytes"),
        None,
        "largest size of a SQLite ledger: a full one stores nothing more, and new data waits in the spool or in Kafka",
        TO_LEDGER,
        _STORAGE,
        default_text="what leaves 1 GiB of its disk free (a tenth of a disk below 10 GiB)",
    )
    text_age: int = _set(
        whole(0, 366 * _DAY_S, unit="seconds"),
        0,
        "with --capture full: keep the text of streams in the data directory for this long, so that `recount` can count it",
        _LOCAL,
        _STORAGE,
        default_text="0, no text is kept",
    )
    # An answer of 1,000 tokens in as many events takes 50 to 70 KB: the default holds about 4,000.
    text_bytes: int = _set(
        whole(16 * 1024**2, 1024**5, unit="bytes"),
        256 * 1024**2,
        "largest size of the texts on disk: the oldest streams are deleted first",
        _LOCAL,
        _STORAGE,
    )
    budgets: Path | None = _set(
        FILE,
        None,
        "TOML file of budgets of tenants or attributes for a month: metrics show what is spent",
        TO_LEDGER,
        _OPERATION,
    )
    prices: Path | None = _set(
        FILE,
        None,
        "TOML file of your own prices, which come before those of genai-prices",
        (*TO_LEDGER, "ledger import", "ledger price"),
        _RECORDS,
    )


@dataclass(frozen=True, kw_only=True)
class AdminSettings:
    """Who may use the admin port, and its TLS."""

    admin_token_file: Path | None = _set(
        FILE,
        None,
        "file that contains the token of --admin, read for each request; or set the variable STREAMGAUGE_ADMIN_TOKEN",
        (*_ADMIN, "top"),
        _OPERATION,
    )
    admin_tls_certificate: Path | None = _set(
        FILE,
        None,
        "PEM file of the certificate with which --admin is served over TLS; reloaded when it changes",
        _ADMIN,
        _OPERATION,
    )
    admin_tls_key: Path | None = _set(
        FILE,
        None,
        "PEM file of the private key of --admin-tls-certificate",
        _ADMIN,
        _OPERATION,
        default_text="that file",
    )
    admin_tls_key_password_file: Path | None = _set(
        FILE,
        None,
        "file that contains the password of --admin-tls-key, read when the key is loaded",
        _ADMIN,
        _OPERATION,
    )
    admin_log: Path | None = _set(
        FILE,
        None,
        "file to which lines of JSON are appended: who read what at --admin, what it refused, and the settings at each start",
        _ADMIN,
        _OPERATION,
    )
    admin_open: bool = _set(
        switch(),
        False,
        "serve --admin to other hosts without a token: every client that reaches it reads metrics and streams",
        _ADMIN,
        _OPERATION,
    )
    admin_ca: Path | None = _set(
        FILE, None, "PEM file of CAs to trust for an https address", ("top",), _OPERATION, default_text="the system's"
    )


@dataclass(frozen=True, kw_only=True)
class SpanSettings:
    """The settings of spans (`--otlp`)."""

    otlp: str | None = _set(
        SPAN_RECEIVER,
        None,
        "send each new record of the ledger as a span to this receiver, such as an OpenTelemetry Collector; /v1/traces is "
        "added to the URL unless it ends so",
        TO_LEDGER,
        _OPERATION,
    )
    otlp_header: tuple[SpanHeader, ...] = _set(
        SPAN_HEADERS, (), "header of the requests to --otlp; repeatable", TO_LEDGER, _OPERATION, secret=True
    )
    otlp_header_file: Path | None = _set(
        FILE,
        None,
        "file that contains a header of --otlp-header, which may be a token; read once",
        TO_LEDGER,
        _OPERATION,
        content_of="otlp_header",
    )


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
        "address at which clients are served, or Envoy",
        (*_RELAYS, *_ENVOY, "demo"),
        _CLIENTS,
        elsewhere={"demo": "any free port"},
    )
    admin: Address = _set(
        ADDRESS,
        Address(host="127.0.0.1", port=9464),
        "address of /metrics and /health",
        _ADMIN,
        _OPERATION,
        elsewhere={"worker": str(WORKER_ADMIN), "demo": "any free port, with --serve 9464"},
    )
    admin_host: tuple[str, ...] = _set(
        HOSTS,
        (),
        "host name by which Prometheus may call --admin, besides addresses and localhost; repeatable",
        _ADMIN,
        _OPERATION,
    )
    data_dir: Path = _set(
        DIRECTORY,
        default_data_dir,
        "directory for the ledger, for keys, and for the spool: captured data that is not delivered yet",
        (*_SERVICES, *_REPLAYS, "demo", *LEDGER_COMMANDS),
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
    kafka_ca: Path | None = _pem_file("CAs to trust for brokers", _KAFKA, _KAFKA_SECTION, default_text="the system's")
    kafka_certificate: Path | None = _pem_file("a client certificate for brokers", _KAFKA, _KAFKA_SECTION)
    kafka_key: Path | None = _pem_file(
        "the private key of --kafka-certificate", _KAFKA, _KAFKA_SECTION, default_text="that file"
    )
    kafka_key_password_file: Path | None = _key_password_file("--kafka-key", _KAFKA, _KAFKA_SECTION)
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
        whole(1, 32),
        1,
        "processes that forward traffic, or serve Envoy: about one for each core that it needs",
        ("tap", *_ENVOY),
        _OPERATION,
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
        (*_SERVICES, *LEDGER_READERS, "ledger price"),
        _CAPTURE,
    )
    tokenizer: tuple[TokenizerFile, ...] = _set(
        TOKENIZER_FILES,
        (),
        "tokenizer.json of a model, as published with it; MODEL is the beginning of the model's name; repeatable",
        ("recount",),
        _RECORDS,
    )
    upstream_idle_timeout: float = _set(
        seconds(),
        900.0,
        "end a response after this time without a byte from the upstream",
        (*_RELAYS, *_PACKETS),
        _UPSTREAMS,
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
        "show metrics of streams and calls also under OpenTelemetry's names, of this version of its conventions",
        _SERVICES, _OPERATION,
    )  # fmt: skip
    given: Mapping[str, str] = field(default_factory=dict)

    def select(self, part: type[Part], **others: Any) -> Part:
        """The settings of a part of the program: an object of the dataclass `part`.

        Its fields that have the name of a setting get the value from here. `others`: the values of its other fields, and of
        settings that differ for this part.
        """
        names = SETTINGS.keys() & {part_field.name for part_field in fields(cast("Any", part))}
        return part(**({name: getattr(self, name) for name in names} | others))

    @property
    def ledger_url(self) -> str:
        """The ledger's URL: the first that is set, else a file in the data directory."""
        return self.ledger[0] if self.ledger else f"sqlite:///{self.data_dir / 'ledger.sqlite'}"


def _declarations() -> dict[str, Setting]:
    """In the order of help and reference: those of several parts first, then each group."""
    declared: dict[str, Setting] = {}
    by_name = {settings_field.name: settings_field for settings_field in fields(Settings)}
    for group in (Settings, *Settings.__bases__):
        for name in group.__annotations__:
            if "declared" in by_name[name].metadata:
                *positional, more = by_name[name].metadata["declared"]
                declared[name] = Setting(name, *positional, **more)
    return declared


# Every setting, by name.
SETTINGS = _declarations()
