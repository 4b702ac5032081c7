"""The rules of the house. Default deny: a module that is not listed as an edge is pure, and has no foreign library."""

import ast
import sys
from pathlib import Path

from tests.each import each

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "pipeline" / "streamgauge"
TESTS = ROOT / "tests"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Library modules that touch the world: only an edge may import one.
IMPURE = {
    "asyncio", "concurrent", "ctypes", "datetime", "fcntl", "gc", "http", "importlib", "inspect", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "random", "resource", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "traceback", "urllib", "uuid",
}  # fmt: skip
# Builtins that do so without an import.
IMPURE_CALLS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
# Pure parts of these: types, tables and arithmetic, no clock and no world.
PURE_NAMES = {
    ("datetime", "UTC"), ("datetime", "datetime"), ("datetime", "timedelta"), ("uuid", "UUID"), ("http", "HTTPStatus"),
    ("urllib.parse", "urlsplit"), ("urllib.parse", "parse_qsl"), ("urllib.parse", "unquote"),
}  # fmt: skip

# Used everywhere: it reads and writes bytes, and touches nothing.
FOREIGN = {"msgspec"}
# The edges: where the world is touched, each with its one foreign library (and what belongs to it). Nothing else may.
EDGES: dict[str, set[str]] = {
    # The core: only what decodes, and is bounded.
    "core/coding_members.py": {"brotli", "zstandard"},
    # The command line, and what it puts together.
    "__main__.py": set(),
    "cli.py": set(),
    "cli_parser.py": set(),
    "config.py": {"pydantic", "pydantic_settings", "platformdirs"},
    "commands/brokers.py": set(),
    "commands/deadletter.py": set(),
    "commands/demo.py": set(),
    "commands/ledger.py": set(),
    "commands/packets.py": set(),
    "commands/replay.py": set(),
    "commands/replay_topic.py": set(),
    "commands/tables.py": set(),
    "commands/tap.py": set(),
    "commands/tapping.py": set(),
    "commands/topics.py": set(),
    "commands/up.py": set(),
    "commands/worker.py": set(),
    "datadir.py": set(),
    "faults.py": set(),
    "group.py": set(),
    "listening.py": set(),
    "loading.py": {"pydantic"},
    "ownership.py": set(),
    "runtime_dir.py": set(),
    "stopping.py": set(),
    # The admin port and the exporter behind it.
    "admin.py": {"aiohttp"},
    "metrics/document.py": set(),
    "metrics/prometheus.py": {"prometheus_client"},
    "metrics/tap.py": set(),
    "records.py": {"pydantic"},
    # The tap: its relay, its recorder, what lies on disk.
    "bundles.py": {"zstandard"},
    "certificates.py": set(),
    "child.py": set(),
    "counters.py": set(),
    "spool/spool.py": set(),
    "spool/file.py": set(),
    "spool/age.py": set(),
    "spool/opening.py": set(),
    "spool/sql.py": set(),
    "spool/reserve.py": set(),
    "taps/httpx.py": set(),
    "taps/httpx_streams.py": set(),
    "taps/inprocess/capture.py": set(),
    "taps/inprocess/courier.py": set(),
    "taps/inprocess/outbox.py": set(),
    "taps/inprocess/place.py": {"platformdirs"},
    "taps/inprocess/role.py": set(),
    "taps/inprocess/sender.py": set(),
    "taps/inprocess/senders.py": set(),
    "taps/recording/gently.py": set(),
    "taps/recording/installation_key.py": set(),
    "taps/asgi.py": set(),
    "taps/inprocess/agent.py": set(),
    "taps/packets/privilege.py": set(),
    "taps/packets/process.py": set(),
    "taps/packets/ring.py": set(),
    "taps/proxy/__main__.py": {"uvloop"},
    "taps/proxy/asker.py": set(),
    "taps/proxy/capture.py": set(),
    "taps/proxy/client.py": set(),
    "taps/proxy/acceptor.py": set(),
    "taps/proxy/exchange.py": set(),
    "taps/proxy/lending.py": set(),
    "taps/proxy/outbox.py": set(),
    "taps/proxy/reader.py": {"httptools"},
    "taps/proxy/refusals.py": set(),
    "taps/proxy/relay.py": set(),
    "taps/proxy/response.py": {"httptools"},
    "taps/proxy/tls.py": set(),
    "taps/proxy/upstream.py": {"aiohappyeyeballs"},
    "taps/proxy/wire.py": set(),
    "taps/replay/cassette_yaml.py": {"yaml"},
    "taps/replay/files.py": set(),
    "taps/replay/spool_rows.py": set(),
    "taps/recording/recorder.py": set(),
    "taps/recording/batches.py": set(),
    "taps/recording/process.py": set(),
    # Kafka and Faust.
    "broker/administrator.py": {"aiokafka"},
    "broker/cancelling.py": set(),
    "broker/connections.py": {"aiokafka"},
    "broker/header_names.py": {"aiokafka"},
    "broker/log_reader.py": {"aiokafka"},
    "broker/producer.py": {"aiokafka"},
    "broker/refusal.py": {"aiokafka"},
    "broker/security.py": {"aiokafka"},
    "broker/topic_ids.py": {"aiokafka"},
    "broker/watch.py": set(),
    "deadletter.py": {"aiokafka"},
    "kafka.py": {"aiokafka"},
    "topics.py": {"aiokafka"},
    "worker/acknowledging.py": set(),
    "worker/app.py": {"faust"},
    "worker/assignment.py": {"faust"},
    "worker/checkup.py": {"aiokafka"},
    "worker/exits.py": set(),
    "worker/dead_letters.py": {"aiokafka"},
    "worker/group_leader.py": {"aiokafka"},
    "worker/log.py": {"aiokafka"},
    "worker/log_lines.py": set(),
    "worker/outbox.py": {"aiokafka"},
    "worker/partition.py": set(),
    "worker/place.py": {"aiokafka"},
    "worker/readiness.py": set(),
    "worker/recognition.py": {"aiokafka"},
    "worker/recovery.py": {"faust", "aiokafka"},
    "worker/run.py": {"faust", "aiokafka", "uvloop"},
    "worker/seams.py": {"faust", "aiokafka"},
    "worker/settings.py": set(),
    "worker/slots.py": set(),
    "worker/stacks.py": set(),
    "worker/store.py": {"faust"},
    "worker/storing.py": {"faust"},
    "worker/transport.py": {"faust", "aiokafka", "mode"},  # mode is what Faust's services are made of
    "worker/watchdog.py": set(),
    # Without Kafka, and where records rest.
    "ledger/sqlite.py": set(),
    "local.py": set(),
    # The demo's simulator, its driver and its view.
    "demo/building.py": set(),
    "demo/child.py": {"httpx"},
    "demo/driver.py": {"openai", "anthropic"},
    "demo/request.py": set(),
    "demo/run.py": {"rich"},
    "demo/simulator.py": {"uvloop"},
    "demo/view.py": {"rich"},
}

# Parts that never import each other; commands/ puts them together.
APART = ("taps", "kafka", "worker", "ledger", "view", "local", "demo", "admin", "group")

# A source has a test of its own name, tests/<folder>/test_<name>.py. These have their test elsewhere, for a reason; a
# folder stands for all in it that have none of their own.
TESTED_BY: dict[str, tuple[str, ...]] = {
    "__main__.py": ("test_cli.py",),  # every command there is run through it
    "cli_deadletter.py": ("commands/test_deadletter.py",),
    "cli_ledger.py": ("commands/test_ledger.py", "test_cli.py"),
    "child.py": ("commands/test_tapping.py",),  # on the children themselves
    "errors.py": ("test_cli.py",),  # exit codes are what it is for
    "commands/demo.py": ("demo/test_command.py",),  # beside the other tests of the demo
    "commands/ledgers.py": ("test_cli.py", "commands/test_ledger.py"),
    "commands/replay_topic.py": ("integration/test_replay.py",),  # needs a broker
    "commands/tap.py": ("integration/test_chain.py", "test_cli.py"),  # with a broker, or without a part that it needs
    "commands/up.py": ("integration/test_up.py",),
    "commands/worker.py": ("integration/test_chain.py", "test_cli.py"),
    # What a dialect means, and what a record says, shows on whole streams.
    "core/dialects/": ("core/test_vectors.py",),
    "core/labels.py": ("core/test_vectors.py",),
    "core/producers.py": ("core/test_assembler.py",),
    "core/reading.py": ("core/test_vectors.py",),
    "core/record.py": ("test_records.py",),
    "core/segments.py": ("test_bundles.py",),
    "core/state.py": ("core/test_assembler.py",),
    "core/stream.py": ("core/test_vectors.py", "core/test_assembler.py"),
    "core/summary.py": ("core/test_vectors.py",),
    "certificates.py": ("taps/proxy/test_tls.py", "broker/test_security.py"),
    "cli_kafka.py": ("test_config.py", "test_cli.py"),
    "cli_parser.py": ("test_cli.py",),
    "core/keep.py": ("core/test_masking.py",),
    "demo/": ("demo/test_scenarios.py", "integration/test_clients.py"),  # data, judged by the official clients
    "kafka.py": ("integration/test_shipper.py",),
    "metrics/declare.py": ("metrics/test_table.py",),
    "metrics/document.py": ("dashboards/test_dashboards.py",),
    "metrics/grafana.py": ("dashboards/test_dashboards.py",),
    "metrics/panels.py": ("dashboards/test_dashboards.py",),
    "metrics/series.py": ("metrics/test_prometheus.py",),
    "spool/opening.py": ("spool/test_file.py",),
    "spool/sql.py": ("spool/test_spool.py",),
    "broker/": ("integration/test_shipper.py",),
    "broker/topic_ids.py": ("faults/test_log_faults.py",),  # needs topics that are made anew
    "broker/log_reader.py": ("integration/test_replay.py",),
    "commands/letter_text.py": ("commands/test_deadletter.py",),
    "commands/packets.py": ("integration/test_packets.py",),
    "taps/packets/exchange.py": ("taps/packets/test_conversation.py",),
    "taps/packets/process.py": ("integration/test_packets.py",),
    "taps/__init__.py": ("taps/contract/test_contract.py",),
    "taps/inprocess/courier.py": ("taps/inprocess/test_sender.py",),
    "taps/recording/batches.py": ("taps/recording/test_process.py",),
    "taps/recording/capture.py": ("taps/recording/test_recorder.py",),
    "taps/messages.py": ("taps/recording/test_process.py",),
    "taps/proxy/__main__.py": ("taps/proxy/test_process.py",),
    "taps/proxy/asker.py": ("taps/proxy/test_exchange.py", "taps/proxy/test_client.py"),
    "taps/proxy/place.py": ("taps/proxy/test_lending.py",),
    "taps/proxy/teller.py": ("taps/proxy/test_capture.py",),
    "taps/replay/contract.py": ("taps/replay/test_files.py",),
    "taps/replay/json_parts.py": ("taps/replay/test_har.py", "taps/replay/test_cassette.py"),
    "taps/replay/members.py": ("taps/replay/test_cassette.py", "taps/replay/test_flows.py"),
    "worker/recognition.py": ("faults/test_log_faults.py",),
    "worker/": ("integration/test_worker.py",),  # agents do nothing without Faust and a broker
}

# A file that is longer hides a second thing : the median is about 120.
MAX_LINES = 400
# What every dialect shows by a vector of that name (tests/vectors/README.md): the usual, and every ending.
OWED = {
    "happy", "tools", "reasoning", "choices", "usage-missing", "truncated",
    "error-before-first-token", "error-mid-stream", "error-after-finish",
}  # fmt: skip
_NO_CHOICES = {"choices": "one answer a request: it has no n"}
_TEXT_ALONE = {"tools": "it knows no tools", "reasoning": "it has text and nothing else"}
# What a dialect cannot show, and why.
NOT_OWED: dict[str, dict[str, str]] = {
    "openai-completions": _TEXT_ALONE,
    "openai-responses": _NO_CHOICES,
    "anthropic-messages": _NO_CHOICES,
    "gemini-interactions": _NO_CHOICES,
    "cohere-v2": _NO_CHOICES,
    "watsonx": {**_TEXT_ALONE, **_NO_CHOICES},
    "tgi-native": {**_TEXT_ALONE, "choices": "best_of cannot be streamed"},
    "llama-cpp-native": _TEXT_ALONE,
    "replicate": {**_TEXT_ALONE, **_NO_CHOICES},
    "anthropic-completions": {**_TEXT_ALONE, **_NO_CHOICES},
}
NAMED_AFTER_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> list[tuple[str, str | None]]:
    """What a module imports when it runs, as (module, name); what stands under TYPE_CHECKING does not count."""
    tree = ast.parse(path.read_text())
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}: relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def foreign_of(path: Path) -> set[str]:
    tops = {module.split(".")[0] for module, _ in imports(path)}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "streamgauge"}


def world_of(path: Path) -> set[str]:
    """What a module imports or calls of the world."""
    found = {
        f"{module}.{name}" if name else module
        for module, name in imports(path)
        if module.split(".")[0] in IMPURE and (module, name) not in PURE_NAMES
    }
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return found | {name.id for name in calls if isinstance(name, ast.Name) and name.id in IMPURE_CALLS}


@each(SOURCES, place)
def test_a_module_has_the_foreign_libraries_of_its_edge_and_no_other(path: Path) -> None:
    assert foreign_of(path) <= FOREIGN | EDGES.get(place(path), set())


@each([path for path in SOURCES if place(path) not in EDGES], place)
def test_a_module_that_is_no_edge_touches_nothing_of_the_world(path: Path) -> None:
    assert world_of(path) == set()


@each(EDGES)
def test_an_edge_is_one(edge: str) -> None:
    path = PACKAGE / edge
    assert foreign_of(path) >= EDGES[edge], "a library that it does not use"
    assert foreign_of(path) - FOREIGN or world_of(path), "it touches nothing: it needs no place among the edges"


@each([path for path in SOURCES if place(path).startswith("core/")], place)
def test_the_core_touches_nothing_of_the_world_and_nothing_around_it(path: Path) -> None:
    assert world_of(path) == set()
    for module, _ in imports(path):
        top = module.split(".")[0]
        assert top != "streamgauge" or module.startswith("streamgauge.core"), f"the core imports {module}"


@each(SOURCES, place)
def test_parts_that_are_apart_do_not_import_each_other(path: Path) -> None:
    own = place(path).split("/")[0].removesuffix(".py")
    if own in ("commands", "cli"):
        return
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] != "streamgauge":
            continue
        other = parts[1] if len(parts) > 1 else name
        assert other not in APART or other == own or own not in APART, f"{own} imports {other}"


@each(SOURCES, place)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert path.stem not in NAMED_AFTER_NOTHING
    assert ast.get_docstring(ast.parse(text)), "no docstring"


def is_only_a_sign(path: Path) -> bool:
    """Nothing but a docstring, imports and names: no code that a test could run."""
    signs = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)
    return path.name == "__init__.py" and all(isinstance(node, signs) for node in ast.parse(path.read_text()).body)


@each([path for path in SOURCES if not is_only_a_sign(path)], place)
def test_a_source_has_its_test(path: Path) -> None:
    own = TESTS / path.relative_to(PACKAGE).with_name(f"test_{path.name}")
    if path.name == "__init__.py":
        own = TESTS / path.parent.relative_to(PACKAGE) / "test_contract.py"
    listed = [one for one in TESTED_BY if place(path) == one or (one.endswith("/") and place(path).startswith(one))]
    elsewhere = [test for one in listed for test in TESTED_BY[one]]
    assert own.exists() or elsewhere, f"there is no {own.relative_to(ROOT)}"
    assert all((TESTS / name).exists() for name in elsewhere)


def test_nothing_is_said_of_sources_that_are_gone() -> None:
    assert [place for place in (*EDGES, *TESTED_BY) if not (PACKAGE / place).exists()] == []


def test_every_dialect_is_in_the_one_list() -> None:
    from streamgauge.core.dialects import DIALECTS

    files = {path.stem for path in (PACKAGE / "core" / "dialects").glob("*.py")} - {"__init__", "contract"}
    files -= {stem for stem in files if stem.endswith("_tables")}  # what a dialect knows, as data
    assert files == {type(dialect).__module__.split(".")[-1] for dialect in DIALECTS}


# What lies beside the taps and is none: what they tell, who listens, and what two of them share.
BESIDE_TAPS = {"messages", "recording", "inprocess", "httpx_streams"}


def test_every_tap_is_in_the_one_list() -> None:
    from streamgauge.taps import TAPS

    there = {path.stem for path in (PACKAGE / "taps").iterdir() if not path.name.startswith("__")}
    assert there - BESIDE_TAPS == {tap.module for tap in TAPS}
    assert there >= BESIDE_TAPS


def test_every_tap_stands_to_the_contract() -> None:
    from streamgauge.taps import TAPS
    from tests.taps.contract.drivers import DRIVERS

    assert {driver.tap for driver in DRIVERS.values()} == {tap.name for tap in TAPS}


def test_every_dialect_has_the_vectors_it_owes() -> None:
    from streamgauge.core.dialects import DIALECTS

    for dialect in DIALECTS:
        names = {path.stem for path in (TESTS / "vectors" / dialect.name).glob("*.sse")}
        missing = OWED - names - NOT_OWED.get(dialect.name, {}).keys()
        assert not missing, f"{dialect.name} has no vector {', '.join(sorted(missing))}"


def test_what_is_not_owed_is_not_there() -> None:
    from streamgauge.core.dialects import BY_NAME

    for name, reasons in NOT_OWED.items():
        assert name in BY_NAME
        assert reasons.keys() <= OWED
        there = [kind for kind in reasons if (TESTS / "vectors" / name / f"{kind}.sse").exists()]
        assert there == [], f"{name} has what the table says it cannot have"
