"""Rows of the table of faults: the broker, taps, workers, the flow, clocks, the soak."""

from tests.faults.row import Row

_BROKER = "tests/faults/test_broker_faults.py"
_REFUSALS = "tests/faults/test_broker_refusals.py"
_RIGHTS = "tests/faults/test_broker_rights.py"
_PARTITIONS = "tests/faults/test_partitions.py"
_DISK = "tests/faults/test_disk_faults.py"
_TAP = "tests/faults/test_tap_faults.py"
_LOG = "tests/faults/test_log_faults.py"
_WORKER = "tests/faults/test_worker_faults.py"
_OUTAGES = "tests/faults/test_outages.py"
_LONG = "tests/faults/test_long_outages.py"
_CLIENTS = "tests/faults/test_client_faults.py"
_KILLS = "tests/faults/test_worker_kills.py"
_FLOW = "tests/faults/test_flow_faults.py"
_REAL_WORKER = "tests/integration/test_worker.py"
_CHAOS = "tests/chaos/test_chaos.py::test_every_stream_has_one_record_whatever_is_killed"
_SIMULATION = "tests/worker/simulation"
_RANDOM_OUTAGES = "tests/chaos/test_outages.py::test_short_run_with_a_real_broker_has_no_finding"

ROWS = {
    # --- the broker -----------------------------------------------------------------------------------------------------
    "K1": Row(
        "broker down at start",
        "the tap serves at once; the spool grows; a metric reports it; everything is delivered when the broker is up",
        (f"{_BROKER}::test_k1_broker_away_at_start",),
    ),
    "K2": Row(
        "broker dies under traffic",
        "nothing is lost while the spool has room; the order within a stream is kept",
        (
            f"{_BROKER}::test_k2_broker_killed_under_traffic",
            "tests/integration/test_shipper.py::test_k2_a_real_broker_that_is_killed_and_restarted",
        ),
    ),
    "K3": Row(
        "broker slow, 0.5 and 5 s a request",
        "clients are not affected; memory is bounded; few requests wait at the broker",
        (
            f"{_BROKER}::test_k3_slow_broker",
            f"{_BROKER}::test_k3_slow_broker_is_not_flooded_with_requests",
        ),
    ),
    "K4": Row(
        "half-open connection to the broker: one way, the other, both",
        "no client waits for a send; a new connection within the request timeout of 10 s",
        (
            f"{_BROKER}::test_k4_half_open_connection",
            f"{_REFUSALS}::test_k4_connection_that_breaks_repeatedly",
        ),
    ),
    "K5": Row(
        "produce errors, retriable and permanent",
        "retriable: no loss. Permanent: that bundle alone is dropped as `refused`, after a bounded number of tries; a record"
        " that its topic refuses becomes a dead letter",
        (
            f"{_REFUSALS}::test_k5_retriable_error_drops_nothing",
            f"{_REFUSALS}::test_k5_a_bundle_that_is_too_large_is_dropped_alone",
            f"{_REFUSALS}::test_k5_bundle_that_always_fails_is_dropped_after_some_tries",
            f"{_REFUSALS}::test_k5_denied_write_is_logged_and_waits_for_an_operator",
            f"{_REFUSALS}::test_k5_a_bug_of_ours_does_not_end_the_shipper",
            f"{_REAL_WORKER}::test_k5_a_record_that_its_topic_refuses_waits_for_the_dead_letters",
        ),
    ),
    "K6": Row(
        "spool full, disk full, read-only, damaged, deleted",
        "losses follow the policy and are counted by reason; traffic is not affected; only the damaged part is lost",
        (
            f"{_DISK}::test_k6_spool_full",
            f"{_DISK}::test_k6_disk_full",
            f"{_DISK}::test_f9_an_ordered_stop_on_a_full_disk_reports_what_is_lost",
            f"{_DISK}::test_k6_a_small_disk_is_not_filled_by_the_spools_own_log",
            f"{_DISK}::test_k6_a_start_on_a_full_disk_says_to_make_room",
            f"{_DISK}::test_k6_read_only_and_writable_again",
            f"{_DISK}::test_k6_file_damaged_under_a_tap",
            f"{_DISK}::test_k6_file_deleted_under_a_tap",
            "tests/spool/test_file.py",
            "tests/spool/test_full_disk.py",
        ),
    ),
    "K7": Row(
        "topic missing, denied, deleted, with other partitions; no broker at all; each right missing",
        "the tap serves and drops nothing; the log names the topic or the right once; a worker or command ends with one"
        " sentence",
        (
            f"{_REFUSALS}::test_k7_topic_missing_or_denied_and_the_tap_serves",
            f"{_REFUSALS}::test_k7_topic_recreated_while_the_shipper_runs",
            f"{_REFUSALS}::test_k7_server_that_is_no_broker_ends_no_tap",
            f"{_RIGHTS}::test_k7_each_right_that_is_missing_is_named",
            f"{_RIGHTS}::test_k7_each_right_to_write_or_create_is_needed",
            f"{_RIGHTS}::test_k7_tap_names_what_is_denied_or_missing_and_continues_once_it_exists",
            f"{_RIGHTS}::test_k7_a_worker_without_a_right_does_not_start",
            f"{_RIGHTS}::test_k7_worker_ends_when_a_right_is_revoked_and_its_successor_continues",
            f"{_PARTITIONS}::test_k7_partitions_added",
            f"{_PARTITIONS}::test_k7_partitions_added_under_a_tap",
        ),
    ),
    "K8": Row(
        "broker away for ten minutes with two workers and idle topics; its first messages after the return; a worker"
        " started meanwhile",
        "the first record within 15 s of the return; no exit without a reason; nothing lost",
        (
            f"{_LONG}::test_k8_broker_away_for_minutes_with_idle_topics_and_a_worker_started_meanwhile",
            _RANDOM_OUTAGES,
        ),
    ),
    "K9": Row(
        "all brokers away for two minutes during a recovery, a rebalance, a checkpoint; changelog messages are lost during a"
        " recovery",
        "as K8; lost changelog messages are read again",
        (
            f"{_LONG}::test_k9_broker_away_during_a_recovery_a_rebalance_and_a_checkpoint",
            f"{_OUTAGES}::test_k9_lost_changelog_messages_are_read_again",
        ),
    ),
    "K10": Row(
        "the committed offsets expired and the state is there; the state is gone and the offsets are there; the segments"
        " topic was recreated",
        "the worker ends with one sentence that says what to do; after it, no record is lost or doubled",
        (
            f"{_OUTAGES}::test_k10_state_replaces_expired_offsets",
            f"{_OUTAGES}::test_k10_recreated_segments_topic_does_not_match_the_given_id",
            f"{_LOG}::test_f7_state_recreated_between_two_runs",
        ),
    ),
    "K11": Row(
        "the broker is away at each step of a worker's start; one metadata request of a group's leader fails",
        "as K8; no worker is ready before it has its partitions",
        (
            f"{_OUTAGES}::test_k11_an_outage_at_each_step_of_a_start",
            f"{_OUTAGES}::test_k11_a_leader_whose_metadata_request_fails_assigns_all_partitions",
        ),
    ),
    "K12": Row(
        "workers starved of the processor beyond their session, then an outage",
        "as K8",
        (f"{_LONG}::test_k12_workers_starved_beyond_their_session_and_then_an_outage",),
    ),
    # --- taps -----------------------------------------------------------------------------------------------------------
    "T1": Row(
        "SIGKILL of relay, collector, supervisor, all",
        "the loss stays within the stated window and counts as `crash`; an open stream ends as `abandoned`, its usage null"
        " and not 0",
        (
            f"{_TAP}::test_t1_sigkill_mid_stream",
            f"{_TAP}::test_t1_the_loss_window_of_the_collector",
            f"{_TAP}::test_t1_any_process_at_any_moment",
        ),
    ),
    "T2": Row(
        "SIGTERM under traffic",
        "open streams end or reach the drain timeout; the spool is delivered or kept; exit code 0",
        (f"{_TAP}::test_t2_sigterm_under_traffic",),
    ),
    "T3": Row(
        "an exception inside capture",
        "traffic goes on; the reads count as `capture_fault`; that stream's record says it is incomplete",
        (f"{_TAP}::test_t3_exception_inside_capture",),
    ),
    "T4": Row(
        "a client that reads 1 KB/s",
        "the upstream is throttled, memory stays flat, no byte is lost; gaps are those of the upstream's bytes; the record"
        " has the time that the client blocked",
        (
            f"{_CLIENTS}::test_t4_a_client_that_reads_a_kilobyte_a_second_throttles_its_upstream",
            f"{_CLIENTS}::test_t4_gaps_of_a_slow_clients_stream_are_those_of_its_upstream",
            "tests/blackbox/test_processes.py::test_t4_a_slow_client_holds_its_upstream_back_and_loses_nothing",
            "tests/taps/proxy/test_client.py::test_a_large_response_with_a_slow_reader_throttles_the_upstream",
        ),
    ),
    "T5": Row(
        "1,000 silent or slow connections",
        "a slow request head is a 408; other clients are not affected; new connections find room",
        (
            f"{_CLIENTS}::test_t5_a_thousand_silent_or_slow_connections",
            "tests/taps/proxy/test_client.py::test_t5_hundreds_of_silent_clients_do_not_slow_one",
            "tests/taps/proxy/test_client.py::test_a_slow_head_is_a_408",
            "tests/taps/proxy/test_acceptor.py::test_silent_connections_make_room_for_new_ones",
        ),
    ),
    "T10": Row(
        "an orderly stop while the recorder is slow, or accepts nothing",
        "every read that the drain timeout allows is delivered; the rest is counted and logged",
        (
            "tests/recorder/test_loop_client.py::test_t10_a_stop_waits_for_a_slow_recorder_until_the_drains_deadline",
            "tests/recorder/test_loop_client.py::test_t10_a_stop_logs_what_was_dropped_for_a_recorder_that_reads_nothing",
        ),
    ),
    "T11": Row(
        "memory or descriptors are short while captured reads are collected, or at the end",
        "those reads are dropped and counted as `recorder_behind`; the pump still stops",
        ("tests/taps/proxy/native/test_pump_faults.py",),
    ),
    "T12": Row(
        "a capture file is shipped twice",
        "the ledger keeps the first record of each stream and counts the second as `different`; the workers' own metrics"
        " count both",
        ("tests/cli/test_worker.py::test_t12_records_of_a_capture_file_that_was_shipped_twice_are_stored_once",),
    ),
    # --- workers --------------------------------------------------------------------------------------------------------
    "W1": Row(
        "SIGKILL of workers under traffic, one after the other",
        "one record for each stream; another worker takes over within the session timeout and 10 s",
        (
            f"{_KILLS}::test_w1_workers_killed_in_rotation_and_taken_over",
            f"{_REAL_WORKER}::test_w1_one_of_two_workers_takes_over",
            _CHAOS,
        ),
    ),
    "W2": Row(
        "workers come and go every five seconds",
        "one record for each stream; no partition is stuck; the lag returns to 0",
        (
            f"{_KILLS}::test_w2_workers_come_and_go_every_five_seconds",
            f"{_SIMULATION}/test_members.py::test_w2_workers_that_are_killed_every_few_seconds_go_on",
            _CHAOS,
        ),
    ),
    "W3": Row(
        "sends confirmed out of order, and a worker killed meanwhile",
        "a committed offset never passes an unfinished bundle",
        (f"{_KILLS}::test_w3_confirmations_in_any_order_never_commit_an_unfinished_bundle",),
    ),
    "W4": Row(
        "worker stopped (SIGSTOP) for 90 s; broker away for five minutes",
        "the worker continues, or exits with its reason; nothing is lost",
        (
            f"{_WORKER}::test_w4_a_worker_stopped_beyond_its_session_comes_back",
            f"{_WORKER}::test_w4_a_lone_worker_stopped_beyond_its_session_goes_on",
            f"{_WORKER}::test_w4_a_broker_away_for_long",
            f"{_WORKER}::test_w4_worker_stops_in_time_while_its_broker_is_unreachable",
        ),
    ),
    "W5": Row(
        "state recovered after 50 random kills",
        "topic and ledger equal a replay of the log, byte for byte",
        (f"{_REAL_WORKER}::test_w5_state_after_random_kills_equals_a_replay", _CHAOS),
    ),
    "W6": Row(
        "streams that never end; all taps of a partition dead",
        "closed as `abandoned` after `--abandon-after`, usage null; counted; their state is freed. The state of a stream that"
        " goes on is bounded, and so is the number of open streams",
        (
            f"{_KILLS}::test_w6_streams_of_a_partition_whose_taps_are_all_dead",
            f"{_REAL_WORKER}::test_w6_ticks_end_streams_whose_tap_has_ended",
            "tests/core/assembly/test_assembler.py::test_the_oldest_stream_is_closed_when_a_bucket_is_full",
            "tests/fuzz/test_growth.py::test_a_stream_stops_growing",
        ),
    ),
    # --- the flow -------------------------------------------------------------------------------------------------------
    "F1": Row(
        "each bundle delivered one to three times",
        "the same bytes in the ledger",
        (
            f"{_FLOW}::test_f1_bundles_delivered_one_to_three_times_give_the_same_ledger",
            f"{_REAL_WORKER}::test_f1_duplicate_bundles_change_nothing",
        ),
    ),
    "F2": Row(
        "bundles shuffled within the reorder window, and beyond it; bundles that come after their streams ended",
        "within: the same bytes in the ledger. Beyond: the record says what was missing; what comes late is counted, and"
        " gives no second record",
        (
            f"{_FLOW}::test_f2_bundles_in_another_order_give_the_same_ledger",
            f"{_FLOW}::test_f2_bundles_that_come_after_their_streams_ended_are_late_and_give_no_second_record",
        ),
    ),
    "F3": Row(
        "bundles lost",
        "the record says that it is incomplete; what is unknown is null; histograms leave it out",
        (f"{_FLOW}::test_f3_lost_bundles_leave_records_that_say_so_and_no_wrong_latency",),
    ),
    "F4": Row(
        "a restarted tap; ids of clients and responses that repeat; all bundles sent again",
        "stream ids are the tap's own; ids of clients and providers are attributes only; bundles sent again are skipped",
        (f"{_FLOW}::test_f4_clients_ids_that_repeat_and_a_restarted_tap_that_sends_again",),
    ),
    "F5": Row(
        "a stopped worker wakes after its partition moved and writes old state; the next owner dies too",
        "the newest state wins; one record for each stream",
        (
            f"{_KILLS}::test_f5_a_stopped_worker_wakes_after_the_next_owner_died_too",
            f"{_REAL_WORKER}::test_f5_old_state_that_is_written_late_does_not_win",
            _CHAOS,
        ),
    ),
    "F6": Row(
        "a crash between any two sends of a checkpoint",
        "nothing is lost, and nothing is recorded twice",
        (
            f"{_KILLS}::test_f6_a_crash_between_any_two_sends_of_a_checkpoint",
            f"{_SIMULATION}/test_replay.py::test_replay_from_an_interrupted_checkpoint_gives_the_same_records",
            "tests/worker/test_local.py::test_killed_between_any_two_steps_every_stream_has_one_and_the_same_record",
        ),
    ),
    "F7": Row(
        "the log's beginning deleted before it was read; segments, state or records recreated",
        "lost messages are counted, and their streams marked incomplete; for a recreated topic the worker ends with one"
        " sentence ([what to do then](guides/partitions.md))",
        (
            f"{_LOG}::test_f7_a_beginning_deleted_between_two_runs",
            f"{_LOG}::test_f7_a_beginning_deleted_under_a_worker",
            f"{_LOG}::test_f7_all_messages_deleted_and_none_follows",
            f"{_LOG}::test_f7_segments_recreated_between_two_runs",
            f"{_LOG}::test_f7_segments_recreated_while_a_worker_runs",
            f"{_LOG}::test_f7_segments_deleted_and_not_created_again",
            f"{_LOG}::test_f7_state_recreated_between_two_runs",
            f"{_LOG}::test_f7_state_or_records_recreated_while_a_worker_runs",
            f"{_LOG}::test_f7_unreadable_messages_alone_write_state",
        ),
    ),
    "F8": Row(
        "taps whose clocks are a year fast and a year slow",
        "streams of other taps in the same partition are not affected",
        (f"{_LOG}::test_f8_a_tap_whose_clock_is_a_year_off",),
    ),
    "C1": Row(
        "wall clock steps an hour, either way; a worker's is two hours ahead of the broker's",
        "durations come from the monotonic clock and are never negative; nothing expires by the step",
        (
            f"{_TAP}::test_c1_the_wall_clock_steps_an_hour_either_way",
            f"{_WORKER}::test_c1_a_worker_whose_clock_is_hours_ahead_works",
        ),
    ),
    "G1": Row(
        "the ledger's PostgreSQL is away or crashes; processes that write to it are killed",
        "each record is stored once, in the end",
        (
            "tests/integration/test_worker_postgresql.py::test_a_ledger_that_is_away_for_a_while_gets_every_record",
            "tests/ledger/test_postgresql.py::test_it_works_again_after_a_crash_of_the_server",
            "tests/integration/test_worker_postgresql.py::test_sinks_that_are_killed_lose_no_record_and_store_none_twice",
            "tests/ledger/test_postgresql.py"
            "::test_writers_that_are_killed_lose_nothing_that_was_confirmed_and_store_nothing_twice",
        ),
    ),
    "R1": Row(
        "a soak while the broker is killed and restarted (`make soak`); twice the load for ten minutes, then normal",
        "memory and descriptors do not grow; the lag returns to 0; in each sample the reads seen are those delivered, waiting"
        " and dropped; one correct record for each stream",
        ("tests/bench/test_soak.py::test_r1_a_short_soak_holds",),
    ),
    "I7": Row(
        "a worker that hangs: its loop, a checkpoint, its commits, its ledger, its recovery, the group's own task; a worker"
        " that waits for a good reason; a worker that leaves",
        "a process works, waits for a dependency, or exits with its reason",
        (
            f"{_WORKER}::test_i7_a_stuck_worker_ends_with_its_reason",
            f"{_WORKER}::test_i7_the_last_line_of_a_stuck_worker_has_every_thread",
            f"{_WORKER}::test_i7_worker_that_lost_its_membership_ends",
            f"{_WORKER}::test_i7_waiting_fetch_takes_no_messages_of_a_recovery",
            f"{_WORKER}::test_i7_worker_that_retries_or_is_idle_is_not_stuck",
            f"{_WORKER}::test_i7_health_reports_the_state_of_the_worker",
            f"{_WORKER}::test_i7_stopped_worker_leaves_the_group_and_killed_worker_stays_a_member",
            f"{_WORKER}::test_i7_a_worker_that_comes_back_at_once_may_stay_in_the_group",
            f"{_WORKER}::test_i7_a_worker_without_a_partition_is_ready_and_takes_over",
        ),
    ),
}
