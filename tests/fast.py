"""The fast tests (`make test-fast`, pytest's `--fast`): they start no process and no broker, and none takes long.

All tests are fast except those of `SLOW`. A fast test that starts a process fails with an explanation.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# Fixtures that start a broker or mount a disk: tests with one of them are slow.
FIXTURES = frozenset({"kafka", "own_broker", "own_postgres", "postgres", "secured", "small_disk"})
# The parameter of tests that run on each kind of ledger, for the kind that starts a server.
SERVER = "postgresql"
# Folders, files and tests that start processes.
_PROCESSES = (
    "tests/audit/invoices/test_large.py",
    "tests/bench",
    "tests/blackbox",
    "tests/chaos",
    "tests/contracts/test_contracts.py::test_a_data_directory_of_up",
    "tests/core/http1/test_coding_members.py::test_a_decoder_uses_no_more_memory_than_it_estimates",
    "tests/dashboards/test_outages.py",
    "tests/dashboards/test_panel_data.py",
    "tests/dashboards/test_rules.py",
    "tests/dashboards/test_schema.py",
    "tests/dashboards/test_scrape.py",
    "tests/demo/test_child.py",
    "tests/demo/test_command.py",
    "tests/demo/test_run.py",
    "tests/demo/test_simulator.py",
    "tests/deploy",
    "tests/docs/test_pages.py",
    "tests/docs/test_search.py",
    "tests/faults",
    "tests/integration",
    "tests/doctor/test_buffering.py",
    "tests/doctor/test_ports.py",
    "tests/doctor/test_prometheus.py",
    "tests/doctor/test_whole.py",
    "tests/install",
    "tests/ledger/test_sqlite.py::test_processes_share_one_file_from_its_first_moment",
    "tests/ledger/test_sqlite.py::test_what_was_confirmed_before_a_kill_is_there",
    "tests/ledger/test_migrations.py::test_processes_that",
    "tests/cli/test_agent.py",
    "tests/cli/test_audit.py",
    "tests/cli/test_deadletter.py",
    "tests/cli/test_doctor.py::test_the_doctor_of_a_tap_imports",
    "tests/cli/test_kafka_options.py",
    "tests/cli/test_ledger.py",
    "tests/cli/test_ledger_export.py",
    "tests/cli/test_ledger_import.py",
    "tests/cli/test_main.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_extras.py",
    "tests/cli/test_parser.py::test_help_imports_no_module",
    "tests/cli/test_parser.py::test_help_into_a_pipe",
    "tests/cli/test_parser.py::test_the_version_needs_no_parser",
    "tests/cli/test_pump_fallback.py",
    "tests/cli/test_recount.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_tap.py",
    "tests/cli/test_tap_process.py",
    "tests/cli/test_topics.py",
    "tests/cli/test_worker.py",
    "tests/live/test_fetch_uplot.py",
    "tests/live/test_page.py",
    "tests/live/test_page_login.py",
    "tests/metrics/test_process.py::test_children",
    "tests/recorder/test_decoder_memory.py",
    "tests/security/test_admin_token.py",
    "tests/security/test_files.py",
    "tests/security/test_static_analysis.py",
    "tests/recorder/test_process.py",
    "tests/recorder/test_spool_writer.py::test_at_the_end_a_full_disk",
    "tests/spans/test_collector.py",
    "tests/runtime/test_data_directory.py::test_children_that_inherited_it_keep_it",
    "tests/runtime/test_process_group.py",
    "tests/runtime/test_signal_windows.py",
    "tests/runtime/test_stopping.py",
    "tests/spool/test_file.py",
    "tests/spool/test_read_counters.py",
    "tests/spool/test_reserve.py",
    "tests/spool/test_spool.py",
    "tests/taps/inprocess/test_agent.py",
    "tests/taps/inprocess/test_background_senders.py",
    "tests/taps/inprocess/test_counter_slot.py",
    "tests/taps/packets/test_privilege.py",
    "tests/taps/proxy/native",
    "tests/taps/proxy/test_acceptor.py",
    "tests/taps/proxy/test_limits.py",
    "tests/taps/proxy/test_process.py",
    "tests/taps/proxy/test_tls.py",
    "tests/taps/proxy/test_upstream.py",
    "tests/taps/test_httpx_clients.py",
    "tests/taps/test_httpx_faults.py",
    "tests/test_cli_output.py",
    "tests/test_fast.py",
    "tests/test_kept_logs.py",
    "tests/test_run_tests.py",
    "tests/test_scripts.py",
    "tests/worker/test_log_lines.py",
    "tests/worker/test_slots.py",
    "tests/worker/watchdog",
)
# Tests that compute or wait for many seconds.
_LONG = (
    "tests/audit/world",
    "tests/recount/test_token_counter.py::test_long_runs",
    "tests/core/assembly/test_state_size.py::test_a_forged_bundle",
    "tests/core/formats/test_sse.py::test_lines_that_never_end",
    "tests/core/http1/test_body.py::test_a_long_body_does_not_grow_memory",
    "tests/core/test_vectors.py::test_any_split",  # the other test cuts each vector, too
    "tests/demo/test_truth.py::test_the_record_is_what_the_scenario_defines",
    "tests/differential",
    "tests/doctor/test_ledger.py::test_a_ledger_that_another_process_writes_to_is_ok",
    "tests/doctor/test_upstreams.py::test_servers_that_cannot_be_used",
    "tests/fuzz",
    "tests/kafka/test_dead_letters.py::test_a_broker_that_goes_away",
    "tests/kafka/test_topics.py::test_broker_that_hangs",
    "tests/ledger/test_totals.py",
    "tests/live/test_view.py::test_what_a_process_keeps_is_bounded",
    "tests/metrics/test_attribute_labels.py::test_100_000_values",
    "tests/metrics/test_http_server.py::test_nothing_of_a_malformed_request_is_logged",
    "tests/metrics/test_prometheus.py::test_l1_100_000_models",
    "tests/metrics/test_prometheus.py::test_l1_hostile_names",
    "tests/metrics/test_truth.py",
    "tests/metrics/test_rate_limits.py::test_20_000_keys",
    "tests/recorder/test_budget.py::test_stalled_bodies_are_evicted_for_a_new_one_of_any_size",
    "tests/spool/test_model.py",
    "tests/taps/contract",
    "tests/worker/test_local.py::test_a_spool_that_fails_is_logged_and_retried",
    "tests/taps/proxy/test_early_answers.py::test_h4_the_connection_is_not_used_again",
    "tests/taps/proxy/test_fuzzed_requests.py",
    "tests/recorder/test_loop_client.py",
    "tests/settings/test_declarations.py::test_no_error_quotes_a_password",
    "tests/worker/simulation",
    "tests/worker/test_confirmed_sender.py",
    "tests/worker/test_partition_drop.py",
)
SLOW = (*_PROCESSES, *_LONG)

# What CPython raises when a process starts (audit events).
_STARTS = frozenset({"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})


class ProcessStartedError(RuntimeError):
    """A fast test started a process."""


class NoProcesses:
    """Refuses to start processes while `refused` is open. An audit hook cannot be removed: make one object a session."""

    def __init__(self) -> None:
        self._active = False
        self._started: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._active and event in _STARTS:
            self._started.append(f"{event}{arguments!r:.200}")
            raise ProcessStartedError(self._started[-1])

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Raises ProcessStartedError at the end if a process was to start, also if that error was caught in between."""
        self._active, self._started = True, []
        try:
            yield
        finally:
            self._active = False
        if self._started:
            raise ProcessStartedError(f"a fast test starts processes; list it in {__name__}.SLOW: {self._started}")


def is_slow(nodeid: str, fixtures: Iterable[str] = ()) -> bool:
    """Whether an id lies within SLOW, or is that of a test with the parameter SERVER or a fixture of FIXTURES."""
    parameters = nodeid.partition("[")[2]
    return nodeid.startswith(SLOW) or SERVER in parameters or not FIXTURES.isdisjoint(fixtures)
