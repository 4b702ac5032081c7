"""The settings of spans (`--otlp`), for the commands that write a ledger, and their types. `config.py` has all others."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from streamgauge.ledger_settings import TO_LEDGER
from streamgauge.runtime.redaction import redacted_value
from streamgauge.setting_types import FILE, SettingType, declared, http_parts

# Characters that a request line may contain unchanged.
_URL = re.compile("[!-~]+")
# A header's name and value in HTTP (RFC 9110, section 5). A longer value is a file that was given instead.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile("[!-~]([ -~]{0,4094}[!-~])?")
# Headers that the exporter or HTTP itself sets.
_OF_EXPORTER = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)


@dataclass(frozen=True)
class SpanHeader:
    """A header of the requests that bring spans. Its value may be a token: no repr shows it."""

    name: str
    value: str = field(repr=False)


def _url(value: object) -> str:
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


def _headers(value: object) -> tuple[SpanHeader, ...]:
    # Text is one header: its value may contain a comma.
    headers = tuple(_header(one) for one in (value if isinstance(value, list | tuple) else (value,)))
    if len({one.name.lower() for one in headers}) != len(headers):
        raise ValueError("a header is given twice: give each once")
    return headers


def _header(value: object) -> SpanHeader:
    """NAME=VALUE. No sentence quotes anything of it."""
    name, equals, content = value.partition("=") if isinstance(value, str) else ("", "", "")
    name, content = name.strip(), content.strip()
    if not equals or not _NAME.fullmatch(name):
        raise ValueError("write NAME=VALUE, as in 'authorization=Bearer TOKEN'")
    if not _VALUE.fullmatch(content):
        raise ValueError("the value of a header may contain printable ASCII characters only, at least 1, at most 4096")
    if name.lower() in _OF_EXPORTER:
        raise ValueError("the exporter sets this header itself: give headers that the receiver asks for")
    return SpanHeader(name, content)


RECEIVER = SettingType("URL", _url, "http:// or https:// URL of a receiver of OTLP/HTTP")
HEADERS = SettingType("NAME=VALUE", _headers, "NAME=VALUE, or a list of these", is_list=True)


@dataclass(frozen=True, kw_only=True)
class SpanSettings:
    """The settings of spans."""

    otlp: str | None = declared(
        RECEIVER,
        None,
        "send each new record of the ledger as a span to this receiver, such as an OpenTelemetry Collector; /v1/traces is "
        "added to the URL unless it ends so",
        TO_LEDGER,
        "Operation",
    )
    otlp_header: tuple[SpanHeader, ...] = declared(
        HEADERS, (), "header of the requests to --otlp; repeatable", TO_LEDGER, "Operation", secret=True
    )
    otlp_header_file: Path | None = declared(
        FILE,
        None,
        "file that contains a header of --otlp-header, which may be a token; read once",
        TO_LEDGER,
        "Operation",
        content_of="otlp_header",
    )
