"""The types of settings: how a value is read from text or TOML, what is allowed, and how help and errors name it.

`SettingType.read` takes text (an option, the environment) or a TOML value. It raises ValueError with the end of a sentence
that says what to write. No sentence quotes what may be a password.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from streamgauge.runtime.listeners import Address
from streamgauge.runtime.nearest import nearest
from streamgauge.runtime.redaction import redacted_item, redacted_value

# The beginning of the variables of the environment.
ENV_PREFIX = "STREAMGAUGE_"

# A longer time is a typing error, and an infinite one is valid neither in a timer nor in JSON (seconds: a year).
MAX_SECONDS = 366 * 24 * 3600.0
_VERSION = re.compile(r"/v[0-9]+(?:(?:alpha|beta)[0-9]*)?\Z", re.ASCII)
_MAX_PORT = 65_535

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
# The length comes first: Python refuses to convert a very long number.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_SHARE_TEXT = re.compile(r"([0-9]{1,2}\.?[0-9]{0,15}|\.[0-9]{1,15})", re.ASCII)
# A header's value in HTTP (RFC 9110, section 5). A longer value is a file that was given instead.
_HEADER_VALUE = re.compile("[!-~]([ -~]{0,4094}[!-~])?")
# Headers that the exporter or HTTP itself sets.
_OF_EXPORTER = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)


@dataclass(frozen=True)
class Upstream:
    """A named provider endpoint. With the empty name it is the only one, and requests carry no prefix."""

    name: str
    url: str


@dataclass(frozen=True)
class ServerPort:
    """A port of a server that a packet capture follows; its name is the upstream's, empty for none."""

    name: str
    port: int


@dataclass(frozen=True)
class SpanHeader:
    """A header of the requests that bring spans. Its value may be a token: no repr shows it."""

    name: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class TokenizerFile:
    """The tokenizer.json of the models whose names begin with `model`."""

    model: str
    path: Path


# Larger units, in which a default is shown as well.
_LARGE_UNITS = {
    "bytes": {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024},
    "seconds": {"days": 24 * 3600},
}


@dataclass(frozen=True)
class SettingType:
    """How a setting is read, and how it is named. `metavar`: the value in help texts; `says`: what the reference says."""

    metavar: str
    read: Callable[[object], Any]
    says: str
    # Every allowed word; empty if there are too many. Help, completion and errors list them.
    choices: tuple[str, ...] = ()
    # The option may be repeated, and a file may hold a list.
    is_list: bool = False
    # The option takes no value.
    is_switch: bool = False
    unit: str = ""

    def shown(self, value: object) -> str:
        """A value as help and reference show it, as in "65536, 64 KiB"."""
        number = f"{value:g}" if isinstance(value, float) else str(value)
        for name, size in _LARGE_UNITS.get(self.unit, {}).items():
            if isinstance(value, int | float) and value >= size and value % size == 0:
                return f"{number}, {value // size:g} {name}"
        return number


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting.

    `about`: a phrase for help and reference, without its default; `commands`: the commands with its option; `section`: of
    help and reference; `default`: None for a default of its part, which `default_text` describes; `elsewhere`: the default
    in some commands, as text; `required`: the commands that require it, with the condition (empty: always);
    `option`: its option, if that is not the name; `aliases`: further options; `secret`: its value may hold a password;
    `content_of`: the setting whose value is the content of this file.
    """

    name: str
    type: SettingType
    default: Any
    about: str
    commands: tuple[str, ...]
    section: str
    default_text: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
    option: str = ""
    aliases: tuple[str, ...] = ()
    secret: bool = False
    content_of: str = ""

    @property
    def flag(self) -> str:
        """The option."""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The environment's variable."""
        return f"{ENV_PREFIX}{self.name.upper()}"

    def shown_default(self, command: str = "") -> str:
        """The default as help and reference show it; empty if there is none."""
        if command in self.elsewhere:
            return self.elsewhere[command]
        if self.default_text:
            return self.default_text
        return "" if self.default in (None, False, (), "") else self.type.shown(self.default)

    def note(self, command: str) -> str:
        """What help and reference say about a command without this setting: "required", or "default: ..."; may be empty."""
        if command in self.required:
            return f"required {self.required[command]}".rstrip()
        default = self.shown_default(command)
        return f"default: {default}" if default else ""


def declared(kind: SettingType, default: Any, about: str, commands: tuple[str, ...], section: str, **more: Any) -> Any:
    """A field of a dataclass of settings, with its declaration as metadata. No repr shows a value that may be secret."""
    metadata = {"declared": (kind, default, about, commands, section, more)}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata, repr=not more.get("secret"))


def whole(low: int, high: int, *, unit: str = "") -> SettingType:
    """A whole number from `low` to `high`; `unit` as in "bytes", empty for a count."""
    allowed = f"a whole number{f' of {unit}' if unit else ''} from {low} to {high}"

    def read(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"give {allowed}")
        return value

    return SettingType(unit.upper() or "N", read, allowed, unit=unit)


def seconds(*, may_be_zero: bool = False) -> SettingType:
    """A duration in seconds, at most a year. The `read` gives a float."""
    allowed = f"seconds, {'0 or more' if may_be_zero else 'more than 0'}, at most {MAX_SECONDS:.0f} (366 days)"

    def read(value: object) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value.strip()):
            value = float(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"give a number of {allowed}, without a unit")
        if not (0 <= value <= MAX_SECONDS) or (value == 0 and not may_be_zero):
            raise ValueError(f"give a number of {allowed}")
        return float(value)

    return SettingType("SECONDS", read, allowed, unit="seconds")


def choice(*names: str, metavar: str = "") -> SettingType:
    """One of some words. If all of them are in upper case, the case of the value does not matter."""
    upper = all(name == name.upper() for name in names)

    def read(value: object) -> str:
        text = value.strip().upper() if upper and isinstance(value, str) else value
        if not isinstance(text, str) or text not in names:
            raise ValueError(f"give {listed(names)}{nearest(value, names)}")
        return text

    return SettingType(metavar or "|".join(names), read, listed(names), choices=names)


def order(*names: str) -> SettingType:
    """Some of the words, each at most once, in an order that matters. The `read` gives a tuple."""
    allowed = f"list of {listed(names)}, in their order"

    def read(value: object) -> tuple[str, ...]:
        items = items_of(value)
        for item in items:
            if item not in names:
                raise ValueError(f"give a {allowed}{nearest(item, names)}")
        if not items or len(set(items)) != len(items):
            raise ValueError(f"give a {allowed}, each at most once")
        return tuple(items)

    return SettingType("NAME[,...]", read, allowed)


def switch() -> SettingType:
    """On or off: its option takes no value."""
    words = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}

    def read(value: object) -> bool:
        is_on = value if isinstance(value, bool) else words.get(str(value).strip().lower())
        if is_on is None:
            raise ValueError(f"give true or false{nearest(value, ('true', 'false'))}")
        return is_on

    return SettingType("", read, "true or false", is_switch=True)


def text(metavar: str) -> SettingType:
    """Any text."""
    return SettingType(metavar, _text, "text")


def listed(names: tuple[str, ...]) -> str:
    """The words as "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def parse_server_port(text: str, shown: str | None = None) -> ServerPort:
    """NAME=PORT, or PORT. Raises ValueError, which quotes `shown` (default: `text` without a possible password)."""
    name, equals, port = text.rpartition("=")
    if (equals and not _NAME.fullmatch(name)) or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= _MAX_PORT:
        shown = shown or redacted_value(text)
        raise ValueError(f"{shown!r} is not a server port: write PORT or NAME=PORT, as in 8000 or vllm=8000")
    return ServerPort(name=name, port=int(port))


def version_at_end(url: str) -> str:
    """The last segment of a URL, or of its path, if it is a version of an API, such as `/v1` or `/v1beta`; else empty.

    Clients have it at the end of their base URL, too. No upstream is known to have a path /v1/v1: the relay writes it once.
    """
    match = _VERSION.search(urlsplit(url).path.rstrip("/"))
    return match[0] if match else ""


def parse_address(text: str, shown: str | None = None) -> Address:
    """HOST:PORT, or [IPV6]:PORT. Raises ValueError, which quotes `shown` as above."""
    shown = shown or redacted_value(text)
    if "@" in text:
        raise ValueError(f"{shown!r} is not an address: give a host and a port, without user and password")
    host, colon, port = text.rpartition(":")
    if colon and re.fullmatch("[0-9]{5,20}", port) and int(port) > _MAX_PORT:
        raise ValueError(f"{shown!r} is not an address: its port is above {_MAX_PORT}")
    if not colon or not re.fullmatch("[0-9]{1,5}", port):
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


def http_parts(url: str, shown: str) -> SplitResult | None:
    """The parts of an http:// or https:// URL; None if it is none. `shown`: the URL in messages. Raises ValueError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        is_large = "out of range" in str(error)
        fault = f"its port is above {_MAX_PORT}" if is_large else "check its host and port"
        raise ValueError(f"{shown!r} is not a URL: {fault}") from None
    return parts if parts.scheme in ("http", "https") and parts.hostname and port != 0 else None


def parse_upstream(text: str, shown: str | None = None) -> Upstream:
    """NAME=URL, or URL alone for a single upstream. Raises ValueError, which quotes `shown` as above."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        name, url = "", text
    shown = shown or redacted_value(text)
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"{shown!r}: the name of an upstream may contain only letters, digits, '.', '_' and '-'")
    parts = http_parts(url, shown)
    if parts is None or not parts.hostname:
        raise ValueError(f"{shown!r} is not an upstream: write NAME=URL, as in openai=https://api.openai.com")
    if parts.username is not None or parts.query or parts.fragment or not _URL.fullmatch(url):
        raise ValueError(f"the upstream {shown!r} may contain only a scheme, host, port and path")
    if ":" not in parts.hostname and not _HOST.fullmatch(parts.hostname):
        raise ValueError(f"the upstream {shown!r} has no valid host name")
    return Upstream(name=name, url=url.rstrip("/"))


def items_of(value: object) -> list[Any]:
    """The items of a list: of the file, of a repeated option, or of text with commas."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give text")
    return value


def _upstreams(value: object) -> tuple[Upstream, ...]:
    items = items_of(value)
    if not all(isinstance(item, str) for item in items):
        raise ValueError("write NAME=URL, or a list of these, as in ['openai=https://api.openai.com']")
    upstreams = tuple(parse_upstream(item, redacted_item(item, value)) for item in items)
    names = [upstream.name for upstream in upstreams]
    if len(set(names)) != len(names):
        raise ValueError("two upstreams have the same name: name them apart, as in --upstream a=URL --upstream b=URL")
    if len(names) > 1 and "" in names:
        raise ValueError("each of several upstreams requires a name, as in --upstream openai=https://api.openai.com")
    return upstreams


def _server_ports(value: object) -> tuple[ServerPort, ...]:
    items = [value] if isinstance(value, str) else items_of(value)
    parts = [(part, item) for item in items for part in (items_of(item) if isinstance(item, str) else [item])]
    ports = tuple(parse_server_port(str(part), redacted_item(str(part), whole)) for part, whole in parts)
    if len({port.port for port in ports}) != len(ports):
        raise ValueError("a port is given twice: give each port once")
    return ports


def _tokenizer_files(value: object) -> tuple[TokenizerFile, ...]:
    files = tuple(_tokenizer_file(item) for item in items_of(value))
    if len({file.model for file in files}) != len(files):
        raise ValueError("a model is named twice: give one tokenizer for each")
    return files


def _tokenizer_file(item: object) -> TokenizerFile:
    model, equals, path = item.partition("=") if isinstance(item, str) else ("", "", "")
    model = model.strip().lower().rpartition("/")[2]  # gateways put a vendor before it, or not
    if not equals or not model or not path.strip():
        raise ValueError("write MODEL=FILE, as in llama-3.1=tokenizer.json")
    return TokenizerFile(model, _path(path.strip()))


def _hosts(value: object) -> tuple[str, ...]:
    items = items_of(value)
    if not all(isinstance(item, str) for item in items):
        raise ValueError("give a host name, or a list of host names")
    return tuple(items)


def _ledgers(value: object) -> tuple[str, ...]:
    # Text is one URL: a comma may be part of it, between the hosts of a PostgreSQL cluster.
    urls = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(url, str) and url for url in urls):
        raise ValueError("give a URL, or a list of URLs")
    if len(set(urls)) != len(urls):
        raise ValueError("a ledger is given twice: give each once")
    return urls


def _address(value: object) -> Address:
    return parse_address(str(value))


def _brokers(value: object) -> str:
    addresses = _text(value)
    brokers = [broker.strip() for broker in addresses.split(",")]
    for broker in brokers:
        shown = redacted_item(broker, addresses)
        if broker.startswith(":") or parse_address(broker, shown).port == 0:
            raise ValueError(f"{shown!r} is not a broker: write HOST:PORT[,HOST:PORT...]")
    return ",".join(brokers)


def _topic_prefix(value: object) -> str:
    if not isinstance(value, str) or not _TOPIC_PREFIX.fullmatch(value):
        shown = redacted_value(str(value))
        raise ValueError(f"{shown!r} is not a topic prefix: use at most 100 letters, digits, '.', '_' and '-'")
    return value


def _header(value: object) -> str:
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise ValueError(f"{redacted_value(str(value))!r} is not a header name")
    return value


def _path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise ValueError("give a path")
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


def _share(value: object) -> float:
    if isinstance(value, str) and _SHARE_TEXT.fullmatch(value.strip()):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError("give a number from 0 to 1")
    return float(value)


def _receiver(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give a URL, as in http://127.0.0.1:4318")
    shown = redacted_value(value)
    parts = http_parts(value, shown)
    if parts is None:
        raise ValueError(f"{shown!r} is not a receiver of OTLP/HTTP: write a URL, as in http://127.0.0.1:4318")
    if parts.username is not None or parts.query or parts.fragment or not _URL.fullmatch(value):
        raise ValueError(
            f"the receiver {shown!r} may contain only a scheme, host, port and path: give a token by --otlp-header-file"
        )
    return value.rstrip("/")


def _span_headers(value: object) -> tuple[SpanHeader, ...]:
    # Text is one header: its value may contain a comma.
    headers = tuple(_span_header(item) for item in (value if isinstance(value, list | tuple) else (value,)))
    if len({header.name.lower() for header in headers}) != len(headers):
        raise ValueError("a header is given twice: give each once")
    return headers


def _span_header(value: object) -> SpanHeader:
    """NAME=VALUE. No sentence quotes anything of it."""
    name, equals, content = value.partition("=") if isinstance(value, str) else ("", "", "")
    name, content = name.strip(), content.strip()
    if not equals or not _HEADER.fullmatch(name):
        raise ValueError("write NAME=VALUE, as in 'authorization=Bearer TOKEN'")
    if not _HEADER_VALUE.fullmatch(content):
        raise ValueError("the value of a header may contain printable ASCII characters only, at least 1, at most 4096")
    if name.lower() in _OF_EXPORTER:
        raise ValueError("the exporter sets this header itself: give headers that the receiver asks for")
    return SpanHeader(name, content)


_COUNT = whole(1, 64)


def _partitions(value: object) -> int:
    count: int = _COUNT.read(value)
    if count & (count - 1):
        raise ValueError(f"{count} is not allowed: the partition count must be a power of two, at most 64")
    return count


UPSTREAMS = SettingType("NAME=URL", _upstreams, "list of NAME=URL, or one URL", is_list=True)
SERVER_PORTS = SettingType("[NAME=]PORT[,...]", _server_ports, "list of PORT or NAME=PORT", is_list=True)
LEDGERS = SettingType("URL", _ledgers, "URL, or a list of URLs", is_list=True)
HOSTS = SettingType("NAME", _hosts, "list of host names", is_list=True)
TOKENIZER_FILES = SettingType("MODEL=FILE", _tokenizer_files, "list of MODEL=FILE", is_list=True)
ADDRESS = SettingType("HOST:PORT", _address, "HOST:PORT or [IPV6]:PORT")
BROKERS = SettingType("HOST:PORT[,...]", _brokers, "HOST:PORT, several with commas")
TOPIC_PREFIX = SettingType("NAME", _topic_prefix, "text, at most 100 letters, digits, '.', '_' and '-'")
HEADER = SettingType("NAME", _header, "name of an HTTP header")
PARTITIONS = SettingType("N", _partitions, "power of two, at most 64")
DIRECTORY = SettingType("DIR", _path, "path of a directory")
FILE = SettingType("FILE", _path, "path of a file")
SHARE = SettingType("SHARE", _share, "a number from 0 to 1")
SPAN_RECEIVER = SettingType("URL", _receiver, "http:// or https:// URL of a receiver of OTLP/HTTP")
SPAN_HEADERS = SettingType("NAME=VALUE", _span_headers, "NAME=VALUE, or a list of these", is_list=True)
