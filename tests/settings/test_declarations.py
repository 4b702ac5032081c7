"""Settings: flag, environment, file and default, for each of them; and what cannot be is one sentence."""

import ast
import contextlib
import functools
import io
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from streamgauge.cli.admin_port import with_worker_admin_port
from streamgauge.cli.commands import COMMANDS, parse
from streamgauge.core.limits import Limits
from streamgauge.errors import UsageFault
from streamgauge.kafka import topics
from streamgauge.recorder.process import RecorderSettings
from streamgauge.runtime.data_directory import default_data_dir
from streamgauge.runtime.listeners import Address
from streamgauge.settings.attributes import Attribute
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.sources import load
from streamgauge.settings.types import (
    ENV_PREFIX,
    ServerPort,
    SpanHeader,
    TokenizerFile,
    Upstream,
    parse_address,
    parse_upstream,
)
from streamgauge.taps.envoy.settings import EnvoySettings
from streamgauge.taps.packets.process import PacketSettings
from streamgauge.taps.proxy.relay_settings import RelaySettings
from streamgauge.worker.settings import WorkerSettings
from tests.each import each

PACKAGE = Path(__file__).parents[2] / "pipeline" / "streamgauge"


def local(port: int) -> Address:
    return Address(host="127.0.0.1", port=port)


def one(name: str) -> tuple[Upstream, ...]:
    return (Upstream(name=name, url=f"http://{name}.example"),)


def ports(*given: tuple[str, int]) -> tuple[ServerPort, ...]:
    return tuple(ServerPort(name=name, port=port) for name, port in given)


def tokenizers(**files: str) -> tuple[TokenizerFile, ...]:
    return tuple(TokenizerFile(model, Path(path)) for model, path in files.items())


def attributes(*given: tuple[str, str]) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, header) for name, header in given)


def headers(*given: tuple[str, str]) -> tuple[SpanHeader, ...]:
    return tuple(SpanHeader(name, value) for name, value in given)


# Each setting: default; then what is written in the file, the environment and on the command line, and what it means.
Ways = tuple[Any, tuple[object, Any], tuple[str, Any], tuple[object, Any]]
TABLE: dict[str, Ways] = {
    "upstream": (
        (),
        (["f=http://f.example"], one("f")),
        ("e=http://e.example", one("e")),
        (["a=http://a.example", "b=http://b.example/"], one("a") + one("b")),
    ),
    "listen": (local(8080), ("127.0.0.1:1", local(1)), (":2", local(2)), ("[::1]:3", Address(host="::1", port=3))),
    "admin": (local(9464), ("127.0.0.1:1", local(1)), ("127.0.0.1:2", local(2)), ("127.0.0.1:3", local(3))),
    "admin_host": ((), (["f", "g"], ("f", "g")), ("e, h", ("e", "h")), (["a"], ("a",))),
    "data_dir": (default_data_dir(), ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "capture": ("masked", ("full", "full"), ("masked", "masked"), ("full", "full")),
    "kafka": (None, ("f:1", "f:1"), ("e:1, h:2", "e:1,h:2"), ("[::1]:9092", "[::1]:9092")),
    "kafka_security": ("PLAINTEXT", ("ssl", "SSL"), ("sasl_ssl", "SASL_SSL"), ("PLAINTEXT", "PLAINTEXT")),
    "kafka_ca": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "kafka_certificate": (
        None,
        ("/f.pem", Path("/f.pem")),
        ("/e.pem", Path("/e.pem")),
        ("~/a.pem", Path.home() / "a.pem"),
    ),
    "kafka_key": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "kafka_key_password_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "kafka_mechanism": (
        "SCRAM-SHA-512",
        ("PLAIN", "PLAIN"),
        ("scram-sha-256", "SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "SCRAM-SHA-512"),
    ),
    "kafka_username": (None, ("f", "f"), ("e", "e"), ("a", "a")),
    "kafka_password_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "topic_prefix": ("streamgauge", ("f", "f"), ("e", "e"), ("a.b-c_d", "a.b-c_d")),
    "partitions": (None, (1, 1), ("2", 2), ("64", 64)),
    "replicas": (None, (1, 1), ("2", 2), ("3", 3)),
    "workers": (1, (2, 2), ("3", 3), ("32", 32)),
    "pump": ("auto", ("off", "off"), ("auto", "auto"), ("off", "off")),
    "tenant_header": (None, ("x-f", "x-f"), ("x-e", "x-e"), ("X-Tenant", "X-Tenant")),
    "attribute": (
        (),
        (["f=x-f", "g=x-g"], attributes(("f", "x-f"), ("g", "x-g"))),
        ("e=X-E, h=x-h", attributes(("e", "x-e"), ("h", "x-h"))),
        (["agent=X-Agent"], attributes(("agent", "x-agent"))),
    ),
    "tenants": (None, ("/f.toml", Path("/f.toml")), ("/e.toml", Path("/e.toml")), ("/a.toml", Path("/a.toml"))),
    "tokenizer": (
        (),
        (["f=/f.json", "v/G=/g"], tokenizers(f="/f.json", g="/g")),
        ("e=/e, h=/h", tokenizers(e="/e", h="/h")),
        (["a-1.5=/a=b"], (TokenizerFile("a-1.5", Path("/a=b")),)),
    ),
    "upstream_idle_timeout": (900.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "interface": (None, ("lo", "lo"), ("any", "any"), ("eth0", "eth0")),
    "server_ports": (
        (),
        ([8000, "f=1"], ports(("", 8000), ("f", 1))),
        ("e=2,3", ports(("e", 2), ("", 3))),
        (["4", "a=5,6"], ports(("", 4), ("a", 5), ("", 6))),
    ),
    "pcap": (None, ("/f.pcap", Path("/f.pcap")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "drain_timeout": (30.0, (1, 1.0), ("2.5", 2.5), ("0", 0.0)),
    "on_stop": ("leave", ("stay", "stay"), ("leave", "leave"), ("stay", "stay")),
    "dead_letter_limit": (5_000, (11, 11), ("12", 12), ("13", 13)),
    "segments_id": ("", ("f", "f"), ("e", "e"), ("a", "a")),
    "abandon_after": (3600.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "stall_seconds": (5.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "metric_attribute": ((), (["f", "tenant"], ("f", "tenant")), ("e, h", ("e", "h")), (["agent"], ("agent",))),
    "silent_seconds": (30.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "otel_names": ("off", ("v1.41", "v1.41"), ("off", "off"), ("latest", "latest")),
    "connect_timeout": (10.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "upstream_ca": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "upstream_certificate": (
        None,
        ("/f.pem", Path("/f.pem")),
        ("/e.pem", Path("/e.pem")),
        ("~/a.pem", Path.home() / "a.pem"),
    ),
    "upstream_key": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "upstream_key_password_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "tls_certificate": (
        None,
        ("/f.pem", Path("/f.pem")),
        ("/e.pem", Path("/e.pem")),
        ("~/a.pem", Path.home() / "a.pem"),
    ),
    "tls_key": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "tls_key_password_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "tls_client_ca": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a", Path.home() / "a")),
    "client_token_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "strip_attributes": (False, (True, True), ("off", False), (True, True)),
    "max_request_head": (65_536, (4096, 4096), ("5000", 5000), ("1048576", 1_048_576)),
    "max_request_body": (None, (1, 1), ("2", 2), ("100000000", 100_000_000)),
    "max_connections": (6000, (100, 100), ("1", 1), ("1000000", 1_000_000)),
    "max_connections_per_address": (None, (100, 100), ("1", 1), ("1000000", 1_000_000)),
    "full_share": (1.0, (0.5, 0.5), ("0.25", 0.25), ("0", 0.0)),
    "tenant_source": (
        ("credential", "header"),
        (["header"], ("header",)),
        ("header, credential", ("header", "credential")),
        ("credential", ("credential",)),
    ),
    "spool_bytes": (1024**3, (2**21, 2**21), ("3000000", 3_000_000), ("4000000", 4_000_000)),
    "spool_policy": (
        "drop-newest",
        ("drop-oldest", "drop-oldest"),
        ("drop-newest", "drop-newest"),
        ("drop-oldest", "drop-oldest"),
    ),
    "spool_age": (259_200.0, (1, 1.0), ("2.5", 2.5), ("3", 3.0)),
    "ledger": (
        (),
        (["sqlite:///f", "sqlite:///g"], ("sqlite:///f", "sqlite:///g")),
        ("postgresql://a,b/e", ("postgresql://a,b/e",)),
        (["sqlite:///a"], ("sqlite:///a",)),
    ),
    "ledger_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "ledger_age": (None, (86_400, 86_400), ("100000", 100_000), ("3162240000", 3_162_240_000)),
    "ledger_bytes": (None, (2**21, 2**21), ("3000000", 3_000_000), ("4000000", 4_000_000)),
    "text_age": (0, (3_600, 3_600), ("7200", 7_200), ("86400", 86_400)),
    "text_bytes": (256 * 2**20, (2**25, 2**25), ("30000000", 30_000_000), ("40000000", 40_000_000)),
    "budgets": (None, ("/f.toml", Path("/f.toml")), ("/e.toml", Path("/e.toml")), ("~/a", Path.home() / "a")),
    "prices": (None, ("/f.toml", Path("/f.toml")), ("/e.toml", Path("/e.toml")), ("~/a", Path.home() / "a")),
    "admin_token_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "admin_tls_certificate": (
        None,
        ("/f.pem", Path("/f.pem")),
        ("/e.pem", Path("/e.pem")),
        ("~/a.pem", Path.home() / "a.pem"),
    ),
    "admin_tls_key": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "admin_tls_key_password_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "admin_log": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
    "admin_open": (False, (True, True), ("off", False), (True, True)),
    "admin_ca": (None, ("/f.pem", Path("/f.pem")), ("/e.pem", Path("/e.pem")), ("~/a.pem", Path.home() / "a.pem")),
    "otlp": (None, ("http://f:4318", "http://f:4318"), ("https://e/otlp/", "https://e/otlp"), ("http://a", "http://a")),
    "otlp_header": (
        (),
        (["f=1", "g = Basic Zg=="], headers(("f", "1"), ("g", "Basic Zg=="))),
        ("e=1,h=2", headers(("e", "1,h=2"))),
        (["authorization=Bearer a"], headers(("authorization", "Bearer a"))),
    ),
    "otlp_header_file": (None, ("/f", Path("/f")), ("/e", Path("/e")), ("~/a", Path.home() / "a")),
}


def toml_of(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(toml_of, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


@functools.cache
def helped(path: str) -> str:
    """The help of a command, without line breaks inside a sentence."""
    with contextlib.redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
        parse([*path.split(), "--help"])
    return shown.getvalue()


@pytest.fixture(autouse=True)
def no_settings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the settings from the environment in which the tests run."""
    for name in SETTINGS:
        monkeypatch.delenv(f"{ENV_PREFIX}{name.upper()}", raising=False)


def test_the_table_has_every_setting() -> None:
    assert list(TABLE) == list(SETTINGS)


@each(TABLE)
def test_flag_before_environment_before_file_before_default(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, (in_file, from_file), (in_environment, from_environment), (on_line, from_line) = TABLE[name]
    file = tmp_path / "settings.toml"
    file.write_text(f"{name} = {toml_of(in_file)}\n")
    assert getattr(load({}), name) == default
    assert getattr(load({name: None}, file), name) == from_file
    monkeypatch.setenv(f"{ENV_PREFIX}{name.upper()}", in_environment)
    assert getattr(load({name: None}, file), name) == from_environment
    assert getattr(load({name: on_line}, file), name) == from_line
    monkeypatch.delenv(f"{ENV_PREFIX}{name.upper()}")
    assert getattr(load({name: on_line}, file), name) == from_line


# Arguments without which a command is not parsed.
NEEDED = {
    "deadletter show": ["1"],
    "ledger show": ["id"],
    "audit fetch": ["openai"],
    "ledger export": ["-"],
    "ledger budgets": ["budgets.toml"],
    "config check": ["settings.toml"],
    "assets": ["directory"],
}


# Options with the flag of a setting that they are not: what `rules generate` writes into links.
OPTIONS_OF_THEIR_OWN = {("rules generate", "--ledger")}


@each(TABLE)
def test_each_setting_has_an_option_in_its_commands_and_in_no_other(name: str) -> None:
    setting = SETTINGS[name]
    value = str(TABLE[name][2][0])
    assert setting.about
    assert set(setting.commands) <= set(COMMANDS)
    for path in setting.commands:
        needed = NEEDED.get(path, [])
        for flag in (f"--{name.replace('_', '-')}", setting.flag):
            written = [flag] if setting.type.is_switch else [flag, value]
            given = parse([*path.split(), *needed, *written]).settings
            assert given == {name: True if setting.type.is_switch else [value] if setting.type.is_list else value}
        assert re.search(rf"\n  {setting.flag}[ ,]", helped(path))
    for path, command in COMMANDS.items():
        if setting in command.settings:  # its own, or one of a command whose settings it takes, too
            assert parse([*path.split(), *NEEDED.get(path, []), *written]).settings == given
            continue
        if (path, setting.flag) in OPTIONS_OF_THEIR_OWN:
            continue
        with pytest.raises(SystemExit):
            parse([*path.split(), *NEEDED.get(path, []), setting.flag, value])


def test_a_setting_that_is_not_given_is_not_in_the_arguments() -> None:
    assert all(parse([*path.split(), *NEEDED.get(path, [])]).settings == {} for path in COMMANDS)


def test_a_default_that_the_help_names_is_the_default() -> None:
    named = 0
    defaults = load({})
    for name, setting in SETTINGS.items():
        for path in setting.commands:
            shown = setting.shown_default(path)
            assert not shown or f"[default: {shown}]" in " ".join(helped(path).split())
            value = getattr(with_worker_admin_port(defaults) if path == "worker" else defaults, name)
            if path != "demo" and value is not None and not setting.default_text and value not in (False, (), ""):
                named += 1
                assert shown.partition(", ")[0] == (f"{value:g}" if isinstance(value, float) else str(value))
    assert named > 15


# The dataclasses that `Settings.select` fills for the parts of the program.
PARTS: tuple[Any, ...] = (EnvoySettings, Limits, PacketSettings, RecorderSettings, RelaySettings, WorkerSettings)
# A field of a setting's name that holds something else: the content of the setting's file; on or off.
OTHER_TYPES = {(RecorderSettings, "tenants"), (RelaySettings, "pump")}


@each(PARTS, lambda part: part.__name__)
def test_a_part_takes_settings_with_their_types_and_defaults(part: Any) -> None:
    defaults, types, all_types = load({}), get_type_hints(part), get_type_hints(Settings)
    taken = [field for field in fields(part) if field.name in SETTINGS and (part, field.name) not in OTHER_TYPES]
    assert taken
    for one in taken:
        assert types[one.name] == all_types[one.name], one.name
        assert one.default in (getattr(defaults, one.name), MISSING), one.name


# The commands that run each part. Those of the page's limits are all that show open streams.
RUNS: dict[Any, tuple[str, ...]] = {
    EnvoySettings: ("up envoy", "tap envoy"),
    Limits: ("up", "tap", "up packets", "tap packets", "up envoy", "tap envoy", "worker"),
    PacketSettings: ("up packets", "tap packets"),
    RecorderSettings: ("up", "tap", "up packets", "tap packets", "up envoy", "tap envoy"),
    RelaySettings: ("up", "tap"),
    WorkerSettings: ("worker",),
}


@each(PARTS, lambda part: part.__name__)
def test_a_command_takes_every_setting_that_its_part_uses(part: Any) -> None:
    """What a command does not take has no effect on it."""
    names = [field.name for field in fields(part) if field.name in SETTINGS]
    refused = [(path, name) for path in RUNS[part] for name in names if path not in SETTINGS[name].commands]
    assert refused == []


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("worker", ("tenants", "budgets", "prices")),
        ("replay", ("capture", "tenant_header", "attribute", "data_dir", "abandon_after", "stall_seconds")),
    ],
)
def test_a_command_takes_what_it_uses_itself(command: str, names: tuple[str, ...]) -> None:
    assert [name for name in names if command not in SETTINGS[name].commands] == []


def test_selected_settings_have_their_values_and_the_others() -> None:
    settings = load({"spool_age": "7", "capture": "full"})
    recorder = settings.select(RecorderSettings, tenants={"a": "b"})
    assert (recorder.spool_age, recorder.capture, recorder.data_dir) == (7.0, "full", settings.data_dir)
    assert recorder.tenants == {"a": "b"}
    relay_settings = settings.select(
        RelaySettings, upstreams=[], recorder_socket="", counters_path="", pump=False, drain_timeout=1.0
    )
    assert (relay_settings.drain_timeout, settings.drain_timeout) == (1.0, 30.0)
    assert settings.select(Limits, stall_seconds=1.0) == Limits(stall_seconds=1.0)
    with pytest.raises(TypeError):
        settings.select(RelaySettings)  # without its socket


# Modules that declare defaults of settings: the core imports no settings, so these take the defaults from there.
DECLARING = (
    "settings/declarations.py",
    "core/limits.py",
)


def defaults_in(source: str) -> Iterator[tuple[str, ast.expr]]:
    """The parameters and annotated fields of a module that have the name of a setting (without `_s`), with their defaults."""
    for node in ast.walk(ast.parse(source)):
        found: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found = [(node.target.id, node.value)]
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            last = positional[len(positional) - len(node.defaults) :]
            found = [(one.arg, default) for one, default in zip(last, node.defaults, strict=True)]
            found += [(one.arg, default) for one, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        yield from ((name.removesuffix("_s"), default) for name, default in found if default is not None)


def is_second_default(name: str, default: ast.expr) -> bool:
    """Whether a default is neither None, nor that of the settings (`Settings.name`), nor of another type."""
    if name not in SETTINGS.keys() - {other for _, other in OTHER_TYPES}:
        return False
    if isinstance(default, ast.Attribute) and default.attr == name:
        return False
    if not isinstance(default, ast.Constant):
        return True
    return default.value is not None and type(default.value) is type(SETTINGS[name].default)


def test_no_default_is_declared_twice() -> None:
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    second = [
        (place, name)
        for place, source in sources.items()
        if place not in DECLARING
        for name, default in defaults_in(source)
        if is_second_default(name, default)
    ]
    assert second == []
    limits = load({}).select(Limits)
    assert limits == Limits()


@pytest.mark.parametrize(
    ("source", "is_second"),
    [
        ("def take(connect_timeout_s: float = 10.0): ...", True),
        ("def take(*, max_connections: int = MAX_CONNECTIONS): ...", True),
        ("class Part:\n    drain_timeout: float = 3 * 10.0", True),
        ("class Part:\n    drain_timeout: float = Settings.drain_timeout", False),
        ("def take(drain_timeout, *, pump: bool = True, ledger: str | None = None): ...", False),
    ],
)
def test_a_second_default_is_found(source: str, is_second: bool) -> None:
    assert any(is_second_default(*one) for one in defaults_in(source)) == is_second


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}LISTEN", "")
    assert load({}).listen == local(8080)


BAD: dict[str, tuple[str, str]] = {
    "upstream without a scheme": ("upstream", "openai=api.openai.com"),
    "upstream of another scheme": ("upstream", "ftp://x"),
    "upstream with a key": ("upstream", "https://user:secret@x"),
    "upstream with a query": ("upstream", "https://x/?key=secret"),
    "upstream with a key alone": ("upstream", "ftp://secret@x"),
    "upstream with a key and no port": ("upstream", "https://user:secret@x:port"),
    "upstream with a fragment": ("upstream", "https://x/#secret"),
    "upstream on a host with a space": ("upstream", "http://a b/v1"),
    "upstream on a host that is none": ("upstream", "http://a..b/v1"),
    "upstream with a space in its path": ("upstream", "http://a/v 1"),
    "upstream with a line's end": ("upstream", "http://a/v1\r\nX: y"),
    "upstream on port 0": ("upstream", "http://x:0"),
    "upstream on no port": ("upstream", "http://x:99999"),
    "upstream with a path for a name": ("upstream", "a/b=http://x"),
    "upstreams of one name": ("upstream", "a=http://x,a=http://y"),
    "one of two upstreams unnamed": ("upstream", "a=http://x,http://y"),
    "listen without a port": ("listen", "127.0.0.1"),
    "listen beyond the ports": ("listen", "127.0.0.1:65536"),
    "listen on a word": ("listen", "127.0.0.1:http"),
    "listen on other digits": ("listen", "127.0.0.1:\u0663"),
    "listen on bare IPv6": ("listen", "::1:80"),
    "listen on half a bracket": ("listen", "[::1:80"),
    "listen on no IPv6": ("listen", "[zz]:80"),
    "listen on no interface": ("listen", "[fe80::1%]:80"),
    "listen on no host": ("listen", "..:80"),
    "admin on a host with a space": ("admin", "a b:80"),
    "empty data directory": ("data_dir", ""),
    "nobody's home": ("data_dir", "~nobody-of-this-name/x"),
    "capture of a third kind": ("capture", "some"),
    "broker without a port": ("kafka", "broker"),
    "broker without a host": ("kafka", ":9092"),
    "empty broker in a list": ("kafka", "broker:9092,"),
    "broker on port 0": ("kafka", "broker:0"),
    "another security": ("kafka_security", "tls"),
    "another mechanism": ("kafka_mechanism", "GSSAPI"),
    "no path for a password": ("kafka_password_file", ""),
    "prefix with a slash": ("topic_prefix", "a/b"),
    "prefix too long": ("topic_prefix", "x" * 101),
    "empty prefix": ("topic_prefix", ""),
    "no partition": ("partitions", "0"),
    "no replica": ("replicas", "0"),
    "three partitions": ("partitions", "3"),
    "more partitions than slots": ("partitions", "128"),
    "a word for partitions": ("partitions", "many"),
    "no worker": ("workers", "0"),
    "more workers than roles": ("workers", "33"),
    "spool of a kilobyte": ("spool_bytes", "1024"),
    "spool with a unit": ("spool_bytes", "1GiB"),
    "spool without end": ("spool_bytes", "9" * 30),
    "header with a space": ("tenant_header", "x tenant"),
    "empty header": ("tenant_header", ""),
    "tokenizer without a model": ("tokenizer", "/f.json"),
    "tokenizer of an empty name": ("tokenizer", "vendor/=/f.json"),
    "tokenizer without a file": ("tokenizer", "llama="),
    "tokenizer of a URL": ("tokenizer", "llama=https://x/tokenizer.json"),
    "tokenizers of one model": ("tokenizer", "a/m=/f,b/M=/g"),
    "attribute without a header": ("attribute", "agent"),
    "attribute of an empty header": ("attribute", "agent="),
    "attribute of a header with a space": ("attribute", "agent=x agent"),
    "attribute with a capital": ("attribute", "Agent=x-agent"),
    "attribute with a dash": ("attribute", "my-agent=x-agent"),
    "attribute of a long name": ("attribute", "a" * 33 + "=x-agent"),
    "attribute that is a column": ("attribute", "model=x-model"),
    "attribute that is a label": ("attribute", "le=x-le"),
    "attribute of a credential": ("attribute", "agent=Authorization"),
    "attribute of a header of the body": ("attribute", "agent=content-length"),
    "attributes of one name": ("attribute", "agent=x-a,agent=x-b"),
    "nine attributes": ("attribute", ",".join(f"a{number}=x-a" for number in range(9))),
    "label of no name": ("metric_attribute", "x-agent"),
    "label that is one already": ("metric_attribute", "upstream"),
    "label twice": ("metric_attribute", "agent,agent"),
    "five labels": ("metric_attribute", "a,b,c,d,e"),
    "a switch between on and off": ("strip_attributes", "maybe"),
    "drain without end": ("drain_timeout", "inf"),
    "drain that is no number": ("drain_timeout", "nan"),
    "drain below zero": ("drain_timeout", "-1"),
    "drain with a unit": ("drain_timeout", "30s"),
    "idle timeout of zero": ("upstream_idle_timeout", "0"),
    "connect timeout of ages": ("connect_timeout", "1e300"),
    "abandon at once": ("abandon_after", "0"),
    "a share above the whole": ("full_share", "1.01"),
    "a share that is negative": ("full_share", "-0.1"),
    "a share that is no number": ("full_share", "nan"),
    "a share in percent": ("full_share", "50%"),
    "stall of zero": ("stall_seconds", "0"),
    "spans to no URL": ("otlp", "collector:4318"),
    "spans to another scheme": ("otlp", "grpc://collector:4317"),
    "spans with a key": ("otlp", "http://user:secret@x"),
    "spans with a key in a query": ("otlp", "https://x/?key=secret"),
    "spans to port 0": ("otlp", "http://x:0"),
    "spans to no port": ("otlp", "http://x:99999"),
    "spans with a space in the path": ("otlp", "http://x/a b"),
    "header of spans without a value": ("otlp_header", "authorization="),
    "header of spans without a name": ("otlp_header", "Bearer secret"),
    "header of spans with a space in its name": ("otlp_header", "my key=secret"),
    "header of spans with a line's end": ("otlp_header", "a=secret\r\nx: y"),
    "header of spans that the exporter sets": ("otlp_header", "Content-Type=secret"),
}


@each(BAD)
def test_what_cannot_be_is_one_sentence_that_names_the_setting(case: str) -> None:
    name, value = BAD[case]
    with pytest.raises(UsageFault) as refused:
        load({name: value})
    sentence = str(refused.value)
    assert sentence.startswith(f"--{name.replace('_', '-')} ({ENV_PREFIX}{name.upper()}): ")
    assert "\n" not in sentence
    assert "secret" not in sentence


def test_several_faults_are_a_sentence_each() -> None:
    with pytest.raises(UsageFault) as refused:
        load({"workers": "0", "listen": "x", "stall_seconds": "soon"})
    assert len(str(refused.value).splitlines()) == 3


@pytest.mark.parametrize("prefix", ["streamgauge", "a", "x" * 100, "", "a/b", "a b", ".a", "x" * 101, "-a", "a.b"])
def test_settings_and_topics_take_the_same_prefixes(prefix: str) -> None:
    def taken(check: Any) -> bool:
        try:
            check()
        except ValueError:
            return False
        except UsageFault:
            return False
        return True

    assert taken(lambda: load({"topic_prefix": prefix})) == taken(lambda: topics.Topics(prefix))


@pytest.mark.parametrize("given", ["a=http://x:65536", "a=https://[::1]:99999/v1"])
def test_a_url_with_a_port_that_is_too_large_says_so(given: str) -> None:
    with pytest.raises(ValueError, match=r"is not a URL: its port is above 65535"):
        parse_upstream(given)
    with pytest.raises(ValueError, match=r"is not a URL: check its host and port"):
        parse_upstream("a=http://x:port")


@pytest.mark.parametrize(
    "text", ["127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:80", "db_1.example-net.:0", "0.0.0.0:8080"]
)
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("url", ["http://[::1]:8000", "https://api.example.com/base/path", "http://a_b:1", "http://x"])
def test_an_upstream_keeps_its_url(url: str) -> None:
    assert load({"upstream": f"n={url}/"}).upstream == (Upstream(name="n", url=url),)
    assert load({"upstream": [url]}).upstream == (Upstream(name="", url=url),)


def test_the_ledger_is_in_the_data_directory_unless_named(tmp_path: Path) -> None:
    assert load({"data_dir": str(tmp_path)}).ledger_url == f"sqlite:///{tmp_path}/ledger.sqlite"
    assert load({"ledger": "sqlite:///x"}).ledger_url == "sqlite:///x"


def test_a_header_of_spans_is_given_once_and_shown_nowhere() -> None:
    with pytest.raises(UsageFault, match=r"a header is given twice: give each once$"):
        load({"otlp_header": ["a=CANARY", "A=CANARY"]})
    assert "CANARY" not in repr(load({"otlp_header": ["a=CANARY"]}))
    assert "CANARY" not in repr(load({"otlp_header": ["a=CANARY"]}).otlp_header)


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        load({}).workers = 2  # type: ignore[misc]


def test_limits_of_requests() -> None:
    for wrong in ({"max_request_head": "100"}, {"max_request_head": "2000000"}, {"max_request_body": "0"}):
        with pytest.raises(UsageFault, match=r"^--max-request-"):
            load(wrong)


# --- what may be a password is not quoted ---------------------------------------------------------------------------

CANARY = "CANARY"
# A password, in values that no setting takes; and some that a setting for paths or names takes as they are.
WITH_PASSWORD = (
    "http://user:CANARY@h",
    "http:/user:CANARY@h",
    "http:\\\\user:CANARY@h",
    "//user:CANARY@h",
    "http://user:CANARY/pw@h",
    "http://user:80/CANARY@h",
    "http://us@er:CANARY@h",
    "http://user:CANARY @h",
    "http://user:pw,CANARY@h",
    "http://user:80/CANARY,pw@h",
    "http://user:pw?CANARY@h",
    "http://user:CANARY%40h",
    "http://user:CANARY\uff20h",
    "http://CANARY@h",
    "http://h:CANARY/",
    "http://h/?key=CANARY",
    "http://h/?key=pw@CANARY",
    "http://h/#CANARY",
    "a=http://user:CANARY@h",
    "a=http:/user:CANARY=@h",
    "a=https://x,b=http://user:CANARY@h",
    "http:/user:pw=CANARY@h",
    "user:CANARY@h",
    "user:CANARY@h:9092",
    "x:9092,user:CANARY@h:9092",
    "user:80/CANARY,x@h:9092",
    "user:CANARY@[::1]:9092",
    "[::1:CANARY@h]:9092",
    "postgresql://user:CANARY@h/db",
    "~user:CANARY@h/x",
    "Authorization: Bearer CANARY",
    "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----",
)


def refusals(flags: dict[str, object], settings_file: Path | None = None) -> list[str]:
    """What is said where the settings are refused."""
    try:
        load(flags, settings_file)
    except UsageFault as fault:
        return [str(fault)]
    return []


@pytest.mark.slow
@each(TABLE)
def test_no_error_quotes_a_password(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    texts = []
    for value in WITH_PASSWORD:
        texts += refusals({name: value}) + refusals({name: [value]})
    for value in WITH_PASSWORD[::4]:  # where a value stands makes less of a difference
        for written in (json.dumps(value), json.dumps([value]), f"{{ x = {json.dumps(value)} }}"):
            file.write_text(f"{name} = {written}\n")
            texts += refusals({}, file)
        with monkeypatch.context() as environment:
            environment.setenv(f"{ENV_PREFIX}{name.upper()}", value)
            texts += refusals({})
    assert texts
    assert [text for text in texts if CANARY in text] == []


@each(WITH_PASSWORD)
def test_a_settings_file_and_its_names_are_not_quoted_with_a_password(value: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"{json.dumps(value)} = 1\n")
    [text] = refusals({}, file)
    assert "there is no such setting" in text
    assert CANARY not in text
    if not value.startswith("Auth"):  # a file's name, if an odd one
        [text] = refusals({}, Path(value))
        assert CANARY not in text


@pytest.mark.parametrize(
    "name", ["upstream", "listen", "admin", "kafka", "server_ports", "tls_key", "data_dir", "pcap"]
)
def test_a_setting_for_a_url_an_address_or_a_path_takes_no_url_with_a_password(name: str) -> None:
    for value in WITH_PASSWORD[:4]:
        if name in ("data_dir", "tls_key", "pcap") and not value.startswith("http"):
            continue  # a path
        with pytest.raises(UsageFault, match=f"^--{SETTINGS[name].flag[2:]} "):
            load({name: value})
