"""One tree of settings: flag, else environment (STREAMGAUGE_<NAME>), else settings file (TOML), else default.

Frozen and checked at start-up. Durations are plain seconds, sizes are bytes. A setting that cannot be is refused with one
sentence that names it and says what fits.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from streamgauge.core.assembler import ABANDON_AFTER_S
from streamgauge.core.timing import STALL_SECONDS
from streamgauge.errors import UsageFault

ENV_PREFIX = "STREAMGAUGE_"

# 1 GiB holds about an hour of 1,000 busy streams, masked and compressed, while a broker is away (bytes).
SPOOL_BYTES = 1024**3

# The name of an upstream is a path segment and a metric's label.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# What HTTP allows as a header's name (RFC 9110, section 5.6.2).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_MAX_PORT = 65_535


class Address(BaseModel):
    """A host and port to listen on; port 0 takes any free one."""

    model_config = ConfigDict(frozen=True)

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Upstream(BaseModel):
    """A named provider endpoint. With the empty name it is the only one, and requests carry no prefix."""

    model_config = ConfigDict(frozen=True)

    name: str
    url: str


def parse_address(text: str) -> Address:
    """HOST:PORT, or [IPV6]:PORT. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} is no address: write HOST:PORT, as in 127.0.0.1:8080")
    if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} is no address: write an IPv6 host in brackets, as in [::1]:8080")
    return Address(host=host.strip("[]") or "127.0.0.1", port=int(port))


def parse_upstream(text: str) -> Upstream:
    """NAME=URL, or URL alone for a single upstream. Raises ValueError."""
    name, equals, url = text.partition("=")
    if not equals or "://" in name:
        name, url = "", text
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} cannot name an upstream: use letters, digits, '.', '_' and '-'")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"{text!r} is no upstream: write NAME=URL, as in openai=https://api.openai.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"the upstream {name or url!r} may hold a scheme, host, port and path, and nothing else")
    return Upstream(name=name, url=url.rstrip("/"))


def default_data_dir() -> Path:
    """The platform's state directory for users."""
    return Path(platformdirs.user_state_dir("streamgauge", appauthor=False))


class Settings(BaseSettings):
    """Every setting, with what it means. The name in the environment is STREAMGAUGE_ and the upper-case name."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    upstream: Annotated[tuple[Upstream, ...], NoDecode] = Field((), description="provider endpoints, NAME=URL")
    listen: Annotated[Address, NoDecode] = Field(Address(host="127.0.0.1", port=8080), description="where clients connect")
    admin: Annotated[Address, NoDecode] = Field(Address(host="127.0.0.1", port=9464), description="metrics, health")
    admin_host: Annotated[tuple[str, ...], NoDecode] = Field((), description="further Host names of the admin port")
    data_dir: Path = Field(default_factory=default_data_dir, description="spool, ledger, keys")
    capture: Literal["masked", "full"] = Field("masked", description="full keeps generated text")
    kafka: str | None = Field(None, description="bootstrap brokers, HOST:PORT[,...]")
    topic_prefix: str = Field("streamgauge", description="first word of every topic's name")
    partitions: int | None = Field(None, ge=1, le=64, description="for `topics create`: a power of two up to 64")
    workers: int = Field(1, ge=1, le=32, description="relay processes of a tap")
    ledger: str | None = Field(None, description="sqlite:///FILE")
    spool_bytes: int = Field(SPOOL_BYTES, ge=1024**2, description="room for what is not delivered yet")
    tenant_header: str | None = Field(None, description="request header that names the tenant")
    tenants: Path | None = Field(None, description="TOML file: credential_id = tenant")
    upstream_idle_timeout: float = Field(900.0, gt=0, description="seconds without a byte from the upstream")
    connect_timeout: float = Field(10.0, gt=0, description="seconds to connect to an upstream")
    drain_timeout: float = Field(30.0, ge=0, description="seconds that SIGTERM leaves to open streams")
    abandon_after: float = Field(ABANDON_AFTER_S, gt=0, description="seconds of silence of a tap")
    stall_seconds: float = Field(STALL_SECONDS, gt=0, description="a longer gap is a stall")

    @field_validator("upstream", mode="before")
    @classmethod
    def _upstreams(cls, value: object) -> object:
        return tuple(parse_upstream(item) if isinstance(item, str) else item for item in _items(value))

    @field_validator("upstream")
    @classmethod
    def _named_once(cls, value: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
        names = [upstream.name for upstream in value]
        if len(set(names)) != len(names):
            raise ValueError("two upstreams have one name: give each its own, as in --upstream a=URL --upstream b=URL")
        if len(names) > 1 and "" in names:
            raise ValueError("with several upstreams each needs a name, as in --upstream openai=https://api.openai.com")
        return value

    @field_validator("admin_host", mode="before")
    @classmethod
    def _hosts(cls, value: object) -> object:
        return tuple(_items(value))

    @field_validator("listen", "admin", mode="before")
    @classmethod
    def _address(cls, value: object) -> object:
        return parse_address(value) if isinstance(value, str) else value

    @field_validator("kafka")
    @classmethod
    def _brokers(cls, value: str | None) -> str | None:
        for broker in (value or "").split(","):
            if value is not None and parse_address(broker.strip()).port == 0:
                raise ValueError(f"{broker!r} is no broker: write HOST:PORT[,HOST:PORT...]")
        return value

    @field_validator("tenant_header")
    @classmethod
    def _header(cls, value: str | None) -> str | None:
        if value is not None and not _HEADER.fullmatch(value):
            raise ValueError(f"{value!r} is no header's name")
        return value

    @field_validator("data_dir", "tenants")
    @classmethod
    def _home(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

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
        """Where records rest: as set, else in the data directory."""
        return self.ledger or f"sqlite:///{self.data_dir / 'ledger.sqlite'}"


def _items(value: object) -> list[Any]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def load(flags: Mapping[str, object], settings_file: Path | None = None) -> Settings:
    """The settings for these flags (None means not given). Raises UsageFault."""
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    if settings_file is not None:
        if not settings_file.is_file():
            raise UsageFault(f"there is no settings file {settings_file}")
        given["settings_file"] = settings_file
    try:
        return Settings(**given)
    except ValidationError as error:
        raise UsageFault("\n".join(_sentence(dict(one)) for one in error.errors())) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageFault(f"the settings file {settings_file} is no TOML: {error}") from None


def _sentence(error: Mapping[str, Any]) -> str:
    where = str(error["loc"][0]) if error["loc"] else "settings"
    if error["type"] == "extra_forbidden":
        return f"{where}: there is no such setting"
    what = str(error["msg"]).removeprefix("Value error, ")
    return f"--{where.replace('_', '-')} ({ENV_PREFIX}{where.upper()}): {what}"
