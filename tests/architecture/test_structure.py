"""The rules of the code base. Default deny: a module that is not listed as an edge is pure, and imports no foreign
library.
"""

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.each import each

# One process parses and walks the sources.
pytestmark = pytest.mark.xdist_group("architecture")

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "pipeline" / "streamgauge"
DEMO = ROOT / "pipeline" / "streamgauge_demo"
TESTS = ROOT / "tests"
SOURCES = sorted([*PACKAGE.rglob("*.py"), *DEMO.rglob("*.py")])

# Library modules with side effects or clocks: only an edge may import one.
IMPURE = {
    "asyncio", "concurrent", "ctypes", "datetime", "fcntl", "gc", "http", "importlib", "inspect", "io", "logging", "mmap",
    "multiprocessing", "os", "pathlib", "random", "resource", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "traceback", "urllib", "uuid",
}  # fmt: skip
# Builtins with side effects that need no import.
IMPURE_CALLS = {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
# Names whose attributes are not those of another object of ours.
OWN = {"self", "cls"} | sys.stdlib_module_names
# Pure parts of these: types, tables and arithmetic, without clock or side effects.
PURE_NAMES = {
    ("datetime", "tzinfo"),
    ("datetime", "UTC"), ("datetime", "datetime"), ("datetime", "timedelta"), ("uuid", "UUID"), ("http", "HTTPStatus"),
    ("threading", "local"), ("urllib.parse", "urlsplit"), ("urllib.parse", "parse_qsl"), ("urllib.parse", "unquote"),
    ("urllib.parse", "unquote_to_bytes"),
}  # fmt: skip

# Used everywhere: it encodes and decodes bytes, without side effects.
FOREIGN = {"msgspec"}
# The edges: modules with side effects, each with its one foreign library (and what belongs to it). No other module may
# have any.
EDGES: dict[str, set[str]] = {
    # The core: only libraries that decode, and are bounded.
    "core/http1/coding_members.py": {"brotli", "zstandard"},
    # The command line, and the parts that it combines.
    "__main__.py": set(),
    "cli/main.py": set(),
    "cli/assets.py": set(),
    "cli/audit.py": set(),
    "cli/audit_fetch.py": set(),
    "cli/whole_file.py": set(),
    "cli/audit_output.py": set(),
    "cli/kept_audits.py": set(),
    "cli/totals_report.py": set(),
    "cli/commands/__init__.py": {"click"},
    "cli/commands/audit.py": {"click"},
    "cli/commands/installation.py": {"click"},
    "cli/commands/ledger.py": {"click"},
    "cli/commands/options.py": {"click"},
    "cli/parser.py": {"click"},
    "cli/completion.py": {"click"},
    "cli/extras.py": set(),
    "settings/declarations.py": set(),
    "settings/types.py": set(),
    "cli/kafka_options.py": set(),
    "cli/ledger.py": {"pyarrow"},
    "cli/ledgers.py": set(),
    "cli/ledger_price.py": set(),
    "cli/ledger_show.py": set(),
    "cli/ledger_watch.py": set(),
    "cli/stream_lines.py": set(),
    "cli/stored_streams.py": set(),
    "cli/settings_files.py": set(),
    "cli/tenants_file.py": set(),
    "cli/deadletter.py": set(),
    "cli/demo.py": set(),
    "cli/envoy.py": set(),
    "cli/packets.py": set(),
    "cli/pump_fallback.py": set(),
    "cli/replay.py": set(),
    "cli/recount.py": set(),
    "cli/rules.py": set(),
    "cli/tables.py": set(),
    "cli/tap.py": set(),
    "cli/assembling.py": set(),
    "cli/collector.py": set(),
    "cli/shipping.py": set(),
    "cli/supervisor.py": set(),
    "cli/topics.py": set(),
    "cli/up.py": set(),
    "cli/worker.py": set(),
    "runtime/data_directory.py": set(),
    "runtime/faults.py": set(),
    "runtime/process_group.py": set(),
    "runtime/listeners.py": set(),
    "settings/sources.py": set(),
    "cli/settings.py": set(),
    "runtime/ownership.py": set(),
    "runtime/socket_directory.py": set(),
    "runtime/stopping.py": set(),
    # The admin port and the exporter.
    "metrics/http_server.py": {"aiohttp"},
    "metrics/admin_log.py": set(),
    "settings/exposed_files.py": set(),
    "metrics/admin_access.py": set(),
    "cli/admin_port.py": set(),
    "runtime/secret.py": set(),
    "metrics/process.py": {"prometheus_client"},
    "metrics/prometheus.py": set(),
    "metrics/text_format.py": {"prometheus_client"},
    "metrics/rule_files.py": {"yaml"},
    "metrics/tap.py": set(),
    "records.py": {"pydantic"},
    # The tap: its relay, its recorder, its files.
    "core/capture/bundles.py": {"zstandard"},
    "runtime/certificates.py": set(),
    "runtime/child.py": set(),
    "runtime/control.py": set(),
    "runtime/log_time.py": set(),
    "spool/mapped_file.py": set(),
    "spool/read_counters.py": set(),
    "spool/response_counters.py": set(),
    "spool/spool.py": set(),
    "spool/file.py": set(),
    "spool/row_clock.py": set(),
    "spool/reserve.py": set(),
    "spool/text_store.py": set(),
    "taps/httpx.py": set(),
    "taps/httpx_streams.py": set(),
    "taps/boto3.py": set(),
    "taps/inprocess/endings.py": set(),
    "taps/inprocess/capture.py": set(),
    "taps/inprocess/inbox.py": set(),
    "taps/inprocess/agent_location.py": set(),
    "taps/inprocess/counter_slot.py": set(),
    "taps/inprocess/background_sender.py": set(),
    "taps/inprocess/background_senders.py": set(),
    "recorder/installation_key.py": set(),
    "taps/asgi.py": set(),
    "taps/envoy/process.py": set(),
    "taps/envoy/service.py": {"grpc"},
    "taps/packets/privilege.py": set(),
    "taps/packets/process.py": set(),
    "taps/packets/ring.py": set(),
    "taps/tap_process.py": set(),
    "taps/proxy/__main__.py": {"uvloop"},
    "taps/proxy/capture_gate.py": set(),
    "taps/proxy/client.py": set(),
    "taps/proxy/client_access.py": set(),
    "taps/proxy/acceptor.py": set(),
    "taps/proxy/exchange.py": set(),
    "taps/proxy/websocket_exchange.py": set(),
    "taps/proxy/pump_handle.py": set(),
    "taps/proxy/reader.py": {"httptools"},
    "taps/proxy/refusals.py": set(),
    "taps/proxy/relay.py": set(),
    "taps/proxy/tls.py": set(),
    "taps/proxy/upstream.py": {"aiohappyeyeballs"},
    "taps/proxy/wire.py": set(),
    "taps/replay/cassette_yaml.py": {"yaml"},
    "taps/replay/files.py": set(),
    "taps/replay/spool_rows.py": set(),
    "recorder/recorder.py": set(),
    "recorder/batches.py": set(),
    "recorder/client.py": set(),
    "recorder/loop_client.py": set(),
    "recorder/process.py": set(),
    # Kafka and Faust.
    "kafka/administrator.py": {"aiokafka"},
    "kafka/shims/admin_requests.py": {"aiokafka"},
    "kafka/shims/cancelling.py": set(),
    "kafka/shims/connections.py": {"aiokafka"},
    "kafka/shims/discarding.py": {"aiokafka"},
    "kafka/shims/header_names.py": {"aiokafka"},
    "kafka/shims/passwords.py": {"aiokafka"},
    "kafka/log_reader.py": {"aiokafka"},
    "kafka/producer.py": {"aiokafka"},
    "kafka/connection_diagnosis.py": {"aiokafka"},
    "kafka/security.py": set(),
    "kafka/log_throttle.py": set(),
    "kafka/dead_letters.py": {"aiokafka"},
    "kafka/shipper.py": {"aiokafka"},
    "kafka/topics.py": {"aiokafka"},
    "worker/offset_commits.py": set(),
    "worker/faust/app.py": {"faust"},
    "worker/activity_clock.py": set(),
    "worker/assignment.py": set(),
    "worker/watchdog/progress_probe.py": {"aiokafka"},
    "worker/dead_letters.py": {"aiokafka"},
    "worker/faust/group_leader.py": {"aiokafka"},
    "worker/local.py": set(),
    "worker/log.py": {"aiokafka"},
    "worker/log_lines.py": set(),
    "worker/confirmed_sender.py": {"aiokafka"},
    "worker/partition.py": set(),
    "worker/partition_offsets.py": {"aiokafka"},
    "worker/readiness.py": set(),
    "worker/topic_identity.py": {"aiokafka"},
    "worker/faust/recovery.py": {"faust", "aiokafka"},
    "worker/process.py": {"aiokafka", "uvloop"},
    "worker/faust/consumer.py": {"faust", "aiokafka"},
    "worker/settings.py": set(),
    "worker/slots.py": set(),
    "worker/faust/store.py": {"faust"},
    "worker/ledger_sink.py": set(),
    "worker/faust/transport.py": {"faust", "mode"},  # mode is what Faust's services are made of
    "worker/watchdog/watchdog.py": set(),
    # The doctor.
    "cli/doctor.py": set(),
    "doctor/broker.py": set(),
    "doctor/buffering.py": set(),
    "doctor/checks.py": set(),
    "doctor/clock.py": set(),
    "doctor/cluster.py": set(),
    "doctor/contract.py": set(),
    "doctor/data_directory.py": set(),
    "doctor/formats.py": set(),
    "doctor/ledger.py": set(),
    "doctor/ports.py": set(),
    "doctor/probe.py": set(),
    "doctor/prometheus.py": set(),
    "doctor/settings.py": set(),
    "doctor/upstreams.py": set(),
    "ledger/inspection.py": {"psycopg"},
    # The built-in page.
    "cli/top.py": {"rich"},
    "top/ports.py": set(),
    "top/following.py": set(),
    "top/picture.py": {"rich"},
    "top/terminal.py": {"rich"},
    "live/coverage.py": set(),
    "live/http_pages.py": set(),
    "live/mailbox.py": set(),
    "live/tap_watch.py": set(),
    # Without Kafka, and the storage of records.
    "ledger/sqlite.py": {"sqlalchemy"},
    "ledger/postgresql.py": {"sqlalchemy", "psycopg"},
    "ledger/postgresql_tls.py": {"psycopg"},
    "ledger/schema.py": {"sqlalchemy"},
    "ledger/migrations.py": {"sqlalchemy"},
    "ledger/partitions.py": {"sqlalchemy"},
    "ledger/keys.py": {"sqlalchemy"},
    "ledger/totals.py": {"sqlalchemy"},
    "ledger/usage.py": {"sqlalchemy"},
    "ledger/store.py": {"sqlalchemy"},
    "ledger/urls.py": set(),
    "ledger/budgets.py": set(),
    # Spans.
    "spans/span.py": {"opentelemetry"},
    "spans/sender.py": {"opentelemetry", "requests"},
    # Prices.
    "prices/catalogue.py": {"genai_prices"},
    "prices/sellers.py": {"genai_prices"},
    "prices/price_file.py": set(),
    "prices/price_times.py": set(),
    # The audit: its files, and its temporary tables.
    "audit/invoices/__init__.py": set(),
    "audit/fetch.py": {"httpx"},
    "audit/gateway_logs.py": set(),
    "audit/invoices/file.py": set(),
    "audit/invoices/sources.py": set(),
    "audit/invoices/parquet_rows.py": {"pyarrow"},
    "audit/provenance.py": set(),
    "audit/rates_file.py": set(),
    "audit/recounts.py": set(),
    "audit/result.py": set(),
    "audit/scope.py": set(),
    "audit/steps.py": set(),
    "audit/tables.py": set(),
    # Recounts of tokens: the tokenizers' libraries, and the files of vocabularies.
    "recount/tokenizer.py": {"tiktoken", "tokenizers"},
    "recount/vocabularies.py": set(),
    # The demo's simulator, its driver and its view.
    "demo/building.py": set(),
    "demo/child.py": {"httpx"},
    "demo/driver.py": {"openai", "anthropic"},
    "demo/provider.py": set(),
    "demo/run.py": {"rich"},
    "demo/simulator.py": {"uvloop"},
    "demo/traffic.py": set(),
    "demo/view.py": {"rich"},
}

# Where internals of Faust, mode and aiokafka may be used: what a new version of them may break. Only the first imports
# Faust or mode. tests/worker/faust/test_assumptions.py has a test for each of these internals.
FAUST_ROOM = "worker/faust/"
INSIDES = (FAUST_ROOM, "kafka/shims/")

# What each room may import, besides itself. No two rooms import each other, so dependencies have one direction.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "runtime": {"errors"},
    "settings": {"core", "errors", "runtime"},
    "core": set(),
    "spool": {"core", "errors", "runtime", "settings"},
    "recorder": {"core", "errors", "runtime", "settings", "spool"},
    "taps": {"core", "errors", "recorder", "runtime", "settings", "spool"},
    "metrics": {"core", "errors", "runtime", "spool"},
    "ledger": {"core", "errors"},
    "prices": {"core", "errors", "ledger"},
    "audit": {"core", "errors", "ledger"},
    "live": {"core", "metrics", "runtime", "spool"},
    "top": {"core", "errors", "live", "metrics", "runtime"},
    "kafka": {"core", "errors", "runtime", "settings", "spool"},
    "spans": {"metrics", "runtime"},
    "worker": {"core", "errors", "kafka", "live", "metrics", "runtime", "settings", "spool"},
    "doctor": {"core", "errors", "kafka", "ledger", "runtime", "settings", "spool"},
    "recount": {"core"},
    "records": set(),
    "demo": {"errors"},
}
# The same for the rooms of the core. Its modules without a folder are below all of them except capture.
CORE_ROOMS: dict[str, set[str]] = {
    "capture": set(),
    "formats": set(),
    "http1": {"formats"},
    "dialects": {"formats"},
    "masking": {"dialects", "formats"},
    "assembly": {"capture", "dialects", "formats"},
}

# A source has a test of its own name, tests/<folder>/test_<name>.py. These have their test elsewhere, for a reason; a
# folder stands for all modules in it that have no test of their own.
TESTED_BY: dict[str, tuple[str, ...]] = {
    "__main__.py": ("cli/test_main.py",),  # every command there is run through it
    "spool/mapped_file.py": ("spool/test_read_counters.py", "spool/test_response_counters.py"),
    "cli/commands/": ("cli/test_main.py", "settings/test_declarations.py"),
    "cli/tenants_file.py": ("cli/test_supervisor.py", "cli/test_ledger.py"),
    "settings/types.py": ("settings/test_declarations.py",),
    "settings/exposed_files.py": ("doctor/test_settings.py", "metrics/test_admin_log.py"),
    # Every ledger keeps the contract; what a schema is shows when an earlier one is converted.
    "ledger/contract.py": ("ledger/test_contract.py",),
    "ledger/keys.py": ("ledger/test_contract.py",),
    "ledger/schema.py": ("ledger/test_migrations.py",),
    "ledger/urls.py": ("ledger/test_sqlite.py",),
    "prices/catalogue.py": ("prices/test_pricing.py",),
    "prices/sellers.py": ("prices/test_pricing.py",),
    # The checks show on real servers, brokers and disks.
    "doctor/cluster.py": ("doctor/test_broker.py",),
    "doctor/probe.py": ("doctor/test_upstreams.py",),
    "ledger/inspection.py": ("doctor/test_ledger.py",),
    "errors.py": ("cli/test_main.py",),  # exit codes are what it is for
    # The parts of the audit show in what it finds in a world whose truth is known.
    "audit/": ("audit/world/test_world.py",),
    "cli/audit_output.py": ("cli/test_audit.py",),
    "cli/audit_fetch.py": ("audit/test_fetch.py",),
    "cli/whole_file.py": ("cli/test_ledger.py",),
    "cli/kept_audits.py": ("cli/test_audit.py",),
    "audit/invoices/": ("audit/invoices/test_contract.py", "audit/invoices/test_bounds.py"),
    "cli/demo.py": ("demo/test_command.py",),  # beside the other tests of the demo
    "cli/tap.py": ("integration/test_chain.py", "cli/test_main.py"),  # with a broker, or without a part that it needs
    "cli/up.py": ("integration/test_up.py",),
    "cli/collector.py": ("recorder/test_process.py", "integration/test_up.py"),
    "cli/collector_settings.py": ("recorder/test_process.py",),
    "cli/assembling.py": ("integration/test_up.py",),
    "cli/shipping.py": ("integration/test_chain.py",),
    "runtime/control.py": ("recorder/test_process.py", "runtime/test_process_group.py"),
    "live/answers.py": ("live/test_view.py",),
    "cli/worker.py": ("integration/test_chain.py", "cli/test_main.py"),
    # What a dialect means, and what a record says, shows on whole streams.
    "core/dialects/": ("core/test_vectors.py",),
    "core/formats/reader.py": ("core/formats/test_json_lines.py", "core/formats/test_json_array.py"),
    "core/limits.py": ("core/assembly/test_assembler.py", "settings/test_declarations.py"),
    "core/safe_values.py": ("core/test_vectors.py",),
    "core/assembly/tap_instances.py": ("core/assembly/test_assembler.py",),
    "core/assembly/event_sink.py": ("core/test_vectors.py",),
    "core/record.py": ("test_records.py",),
    "core/capture/segments.py": ("core/capture/test_bundles.py",),
    "core/assembly/state.py": ("core/assembly/test_assembler.py",),
    "core/assembly/stream.py": ("core/test_vectors.py", "core/assembly/test_assembler.py"),
    "core/assembly/record_builder.py": ("core/test_vectors.py",),
    "core/allowlist.py": ("core/masking/test_masker.py",),
    "demo/": ("demo/test_scenarios.py", "integration/test_clients.py"),  # data, judged by the official clients
    "kafka/shipper.py": ("integration/test_shipper.py",),
    "metrics/declarations.py": ("metrics/test_table.py",),
    "metrics/observation.py": ("metrics/test_observe.py",),
    "metrics/series.py": ("metrics/test_prometheus.py",),
    "metrics/text_format.py": ("metrics/test_prometheus.py",),
    "metrics/rules.py": ("dashboards/test_rules.py",),
    "metrics/rules_presence.py": ("dashboards/test_rules.py",),
    "metrics/rules_slo.py": ("dashboards/test_rules.py",),
    "metrics/rules_streams.py": ("dashboards/test_rules.py",),
    "metrics/rules_money.py": ("dashboards/test_rules.py",),
    "metrics/rules_taps.py": ("dashboards/test_rules.py",),
    "metrics/rules_workers.py": ("dashboards/test_rules.py",),
    "metrics/rule_files.py": ("dashboards/test_rules.py",),
    "recount/band_table.py": ("recount/test_bands.py",),
    "kafka/": ("integration/test_shipper.py",),
    "kafka/shims/admin_requests.py": ("kafka/test_topics.py", "worker/test_log.py", "faults/test_log_faults.py"),
    "kafka/shims/discarding.py": ("kafka/test_producer.py",),
    "kafka/shims/passwords.py": ("kafka/test_security.py",),
    "kafka/log_reader.py": ("integration/test_replay.py",),
    "cli/envoy.py": ("integration/test_envoy.py",),
    "taps/envoy/process.py": ("integration/test_envoy.py",),
    "taps/envoy/settings.py": ("settings/test_declarations.py", "integration/test_envoy.py"),
    "cli/packets.py": ("integration/test_packets.py",),
    "taps/packets/exchange.py": ("taps/packets/test_conversation.py",),
    "taps/packets/process.py": ("integration/test_packets.py",),
    "taps/tap_process.py": ("integration/test_packets.py", "integration/test_envoy.py"),
    "taps/__init__.py": ("taps/contract/test_contract.py",),
    "recorder/batches.py": ("recorder/test_process.py",),
    "recorder/capture.py": ("recorder/test_recorder.py",),
    "recorder/fail_open.py": ("recorder/test_exchange_capture.py", "recorder/test_call_capture.py"),
    "recorder/protocol.py": ("recorder/test_process.py",),
    "taps/proxy/__main__.py": ("taps/proxy/test_process.py",),
    "taps/proxy/climbing.py": ("taps/proxy/test_request.py",),
    "taps/proxy/relay_settings.py": ("settings/test_declarations.py", "taps/proxy/test_process.py"),
    "taps/replay/contract.py": ("taps/replay/test_files.py",),
    "taps/replay/members.py": ("taps/replay/test_cassette.py", "taps/replay/test_flows.py"),
    "worker/topic_identity.py": ("faults/test_log_faults.py",),
    "worker/": ("integration/test_worker.py",),  # agents do nothing without Faust and a broker
}

# What every dialect shows by a vector of that name (tests/vectors/README.md): the usual stream, and every ending.
OWED = {
    "happy", "tools", "reasoning", "choices", "usage-missing", "truncated",
    "error-before-first-token", "error-mid-stream", "error-after-finish",
}  # fmt: skip
_NO_CHOICES = {"choices": "one answer a request: it has no n"}
_TEXT_ALONE = {"tools": "it knows no tools", "reasoning": "it has text and nothing else"}
_AUDIO_ALONE = {"tools": "it knows no tools", "reasoning": "it has audio and nothing else"}
_IMAGES_ALONE = {"tools": "it knows no tools", "reasoning": "it has images and nothing else"}
# What a dialect cannot show, and why.
NOT_OWED: dict[str, dict[str, str]] = {
    "openai-completions": _TEXT_ALONE,
    "openai-responses": _NO_CHOICES,
    "openai-realtime": {
        **_NO_CHOICES,
        "reasoning": "no event carries any",
        "error-after-finish": "the connection goes on: later errors are not of the response",
    },
    "openai-transcription": {**_TEXT_ALONE, **_NO_CHOICES},
    "openai-speech": {**_AUDIO_ALONE, **_NO_CHOICES},
    "openai-images": {**_IMAGES_ALONE, "choices": "no event says to which image it belongs"},
    "anthropic-messages": _NO_CHOICES,
    "gemini-interactions": _NO_CHOICES,
    "cohere-v2": _NO_CHOICES,
    "watsonx": {**_TEXT_ALONE, **_NO_CHOICES},
    "tgi-native": {**_TEXT_ALONE, "choices": "best_of cannot be streamed"},
    "llama-cpp-native": _TEXT_ALONE,
    "replicate": {**_TEXT_ALONE, **_NO_CHOICES},
    "anthropic-completions": {**_TEXT_ALONE, **_NO_CHOICES},
    "ollama": _NO_CHOICES,
    "bedrock-converse": _NO_CHOICES,
    "bedrock-text": {**_TEXT_ALONE, **_NO_CHOICES},
    "sourcegraph": {**_TEXT_ALONE, **_NO_CHOICES, "usage-missing": "it has no usage"},
    "cohere-v1": {**_NO_CHOICES, "reasoning": "its plan for calls is text"},
    "workers-ai": {**_NO_CHOICES, "reasoning": "models that reason send OpenAI's chunks"},
    "triton": {
        **_TEXT_ALONE,
        **_NO_CHOICES,
        "usage-missing": "it has no usage of the whole stream",
        "truncated": "the end of the response is the stream's",
    },
}
NAMED_AFTER_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}


@cache
def place(path: Path) -> str:
    """Below the package; the demo's as if it were a room there."""
    if path.is_relative_to(DEMO):
        return "demo/" + path.relative_to(DEMO).as_posix()
    return path.relative_to(PACKAGE).as_posix()


def source(place: str) -> Path:
    """The file of a place."""
    return DEMO / place.removeprefix("demo/") if place.startswith("demo/") else PACKAGE / place


class Facts(NamedTuple):
    """What the rules need to know of a module, without its tree: the trees of all modules take 200 MB.

    `imports`: what it imports when it runs, as (module, name); imports under TYPE_CHECKING do not count. `calls`: the names
    that it calls. `attributes`: those of other objects than itself and modules of the standard library.
    """

    imports: list[tuple[str, str | None]]
    calls: frozenset[str]
    attributes: frozenset[str]
    has_docstring: bool
    has_only_signs: bool


@cache
def facts_of(path: Path) -> Facts:
    tree = ast.parse(path.read_text())
    imported: list[tuple[str, str | None]] = []
    calls, attributes = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}: relative import"
            imported += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            calls.add(node.func.id)
        elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id in OWN):
            attributes.add(node.attr)
    signs = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)
    has_only_signs = all(isinstance(node, signs) for node in tree.body)
    return Facts(imported, frozenset(calls), frozenset(attributes), bool(ast.get_docstring(tree)), has_only_signs)


def imports(path: Path) -> list[tuple[str, str | None]]:
    """What a module imports when it runs, as (module, name)."""
    return facts_of(path).imports


def foreign_of(path: Path) -> set[str]:
    tops = {module.split(".")[0] for module, _ in imports(path)}
    return {top for top in tops if top not in sys.stdlib_module_names | {"streamgauge", "streamgauge_demo"}}


@cache
def world_of(path: Path) -> frozenset[str]:
    """The modules and builtins with side effects that a module uses."""
    found = {
        f"{module}.{name}" if name else module
        for module, name in imports(path)
        if module.split(".")[0] in IMPURE and (module, name) not in PURE_NAMES
    }
    return frozenset(found | (facts_of(path).calls & IMPURE_CALLS))


@each(SOURCES, place)
def test_a_module_has_only_the_foreign_libraries_of_its_edge(path: Path) -> None:
    assert foreign_of(path) <= FOREIGN | EDGES.get(place(path), set())


@each([path for path in SOURCES if place(path) not in EDGES], place)
def test_a_module_that_is_not_an_edge_has_no_side_effects(path: Path) -> None:
    assert world_of(path) == set()


# Public, whatever their names look like.
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def private_of_others(path: Path) -> set[str]:
    """The private names that a module imports, and the private attributes of other objects that it uses.

    Those of the standard library do not count.
    """
    found = set(facts_of(path).attributes)
    found |= {name for module, name in imports(path) if name and module.split(".")[0] not in sys.stdlib_module_names}
    return {name for name in found if name.startswith("_") and not name.endswith("__")} - NAMED_TUPLES


@each(
    [path for path in SOURCES if place(path).startswith(("worker/", "kafka/")) and not place(path).startswith(INSIDES)],
    place,
)
def test_no_other_module_uses_internals_of_faust_or_aiokafka(path: Path) -> None:
    assert private_of_others(path) == set()


@each([path for path in SOURCES if not place(path).startswith(FAUST_ROOM)], place)
def test_only_the_room_of_faust_imports_faust_or_mode(path: Path) -> None:
    assert not foreign_of(path) & {"faust", "mode"}


@each(EDGES)
def test_each_edge_is_needed(edge: str) -> None:
    path = source(edge)
    assert foreign_of(path) >= EDGES[edge], "a library that it does not use"
    assert foreign_of(path) - FOREIGN or world_of(path), "it has no side effects, so it must not be listed as an edge"


@each([path for path in SOURCES if place(path).startswith("core/")], place)
def test_the_core_has_no_side_effects_and_imports_nothing_outside(path: Path) -> None:
    assert world_of(path) == set()
    for module, _ in imports(path):
        top = module.split(".")[0]
        assert top != "streamgauge" or module.startswith("streamgauge.core"), f"the core imports {module}"


def rooms_of(path: Path) -> list[list[str]]:
    """The modules of ours that a module imports, each as its path below the package; the demo's begin with `demo`."""
    found = []
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] == "streamgauge_demo":
            found.append(["demo", *parts[1:]])
        elif parts[0] == "streamgauge":
            inside = [*parts[1:], name] if name and source("/".join([*parts[1:], name])).is_dir() else parts[1:]
            found.append(inside or [name or "__version__"])
    return found


@each(SOURCES, place)
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    own, *inside = place(path).removesuffix(".py").split("/")
    if own in ("cli", "__main__", "__init__"):  # the command line puts the rooms together
        return
    for other, *rest in rooms_of(path):
        assert other in {own, "__version__"} | ROOMS[own], f"{own} imports {other}"
        if own == other == "core" and len(rest) > 1 and inside[0] != rest[0]:
            below = CORE_ROOMS[inside[0]] if len(inside) > 1 else {"capture"}
            assert rest[0] in below, f"core/{'/'.join(inside)} imports core/{rest[0]}"


def test_no_two_rooms_import_each_other() -> None:
    for table in (ROOMS, CORE_ROOMS):
        below = {room: set(others) for room, others in table.items()}
        for _ in below:
            for room, others in below.items():
                below[room] = others.union(*(below[other] for other in others))
        assert [room for room, others in below.items() if room in others] == []


def loaded_by(path: Path) -> set[Path]:
    """The modules of the package that importing a module loads, with itself."""
    loaded: set[Path] = set()
    waiting = [path]
    while waiting:
        loaded.add(module := waiting.pop())
        for name, member in imports(module):
            parts = name.split(".")
            if parts[0] == "streamgauge":
                packages = ["/".join([*parts[1:end], "__init__.py"]) for end in range(1, len(parts) + 1)]
                modules = ["/".join(parts[1:]) + ".py", "/".join([*parts[1:], member or ""]) + ".py"]
                there = {PACKAGE / file for file in (*packages, *modules) if (PACKAGE / file).exists()}
                waiting += there - loaded
    return loaded


def test_the_worker_of_up_loads_neither_faust_nor_aiokafka() -> None:
    loaded = {*loaded_by(PACKAGE / "worker" / "local.py"), PACKAGE / "worker" / "__init__.py"}
    assert PACKAGE / "spool" / "spool.py" in loaded
    assert {place(path) for path in loaded if foreign_of(path) & {"faust", "mode", "aiokafka"}} == set()


@each(SOURCES, place)
def test_a_module_has_a_docstring_and_a_name_that_says_something(path: Path) -> None:
    assert path.stem not in NAMED_AFTER_NOTHING
    assert facts_of(path).has_docstring, "no docstring"


def is_only_a_sign(path: Path) -> bool:
    """Nothing but a docstring, imports and names: no code that a test could run."""
    return path.name == "__init__.py" and facts_of(path).has_only_signs


@each([path for path in SOURCES if not is_only_a_sign(path)], place)
def test_a_source_has_its_test(path: Path) -> None:
    own = TESTS / Path(place(path)).with_name(f"test_{path.name}")
    if path.name == "__init__.py":
        own = TESTS / Path(place(path)).parent / "test_contract.py"
    listed = [one for one in TESTED_BY if place(path) == one or (one.endswith("/") and place(path).startswith(one))]
    elsewhere = [test for one in listed for test in TESTED_BY[one]]
    assert own.exists() or elsewhere, f"there is no {own.relative_to(ROOT)}"
    assert all((TESTS / name).exists() for name in elsewhere)


def test_no_list_names_a_missing_source() -> None:
    assert [place for place in (*EDGES, *TESTED_BY, *INSIDES) if not source(place).exists()] == []


def test_every_dialect_is_in_the_one_list() -> None:
    from streamgauge.core.dialects import DIALECTS

    files = {path.stem for path in (PACKAGE / "core" / "dialects").glob("*.py")} - {
        "__init__",
        "contract",
        "deltas",
        "openai_usage",
        "typed_deltas",
    }
    files -= {stem for stem in files if stem.endswith("_tables")}  # what a dialect knows, as data
    assert files == {type(dialect).__module__.split(".")[-1] for dialect in DIALECTS}


# Modules next to the taps that are not taps, but shared by two of them.
BESIDE_TAPS = {"inprocess", "httpx_streams", "tap_process"}


def test_every_tap_is_in_the_one_list() -> None:
    from streamgauge.taps import TAPS

    there = {path.stem for path in (PACKAGE / "taps").iterdir() if not path.name.startswith("__")}
    assert there - BESIDE_TAPS == {tap.module for tap in TAPS}
    assert there >= BESIDE_TAPS


def test_every_tap_is_tested_by_the_contract() -> None:
    from streamgauge.taps import TAPS
    from tests.taps.contract.drivers import DRIVERS

    assert {driver.tap for driver in DRIVERS.values()} == {tap.name for tap in TAPS}


def test_every_dialect_has_the_required_vectors() -> None:
    from streamgauge.core.dialects import DIALECTS

    for dialect in DIALECTS:
        names = {path.stem for path in (TESTS / "vectors" / dialect.name).glob("*.sse")}
        missing = OWED - names - NOT_OWED.get(dialect.name, {}).keys()
        assert not missing, f"{dialect.name} has no vector {', '.join(sorted(missing))}"


def test_no_vector_exists_that_a_dialect_cannot_have() -> None:
    from streamgauge.core.dialects import BY_NAME

    for name, reasons in NOT_OWED.items():
        assert name in BY_NAME
        assert reasons.keys() <= OWED
        there = [kind for kind in reasons if (TESTS / "vectors" / name / f"{kind}.sse").exists()]
        assert there == [], f"{name} has what the table says it cannot have"
