"""Rows of the table of faults: upstreams, parsers, HTTP, labels, security, dead letters, the audit, versions."""

from tests.faults.row import Row

_ANSWERS = "tests/blackbox/test_answers.py"
_AUDIT = "tests/cli/test_audit.py"
_BODY = "tests/core/http1/test_body.py"
_BROKER_SECURITY = "tests/faults/test_broker_security.py"
_CANARY = "tests/faults/test_canary.py"
_CLIENT = "tests/taps/proxy/test_client.py"
_DEAD_LETTER_LIMIT = "tests/faults/test_dead_letter_limit.py"
_DISK_FAULTS = "tests/faults/test_disk_faults.py"
_EARLY_ANSWERS = "tests/taps/proxy/test_early_answers.py"
_ENVOY = "tests/integration/test_envoy.py"
_LIMITS = "tests/taps/proxy/test_limits.py"
_MAIN = "tests/cli/test_main.py"
_PARSER_FAULTS = "tests/faults/test_parser_faults.py"
_POISON = "tests/faults/test_poison.py"
_PROMETHEUS = "tests/metrics/test_prometheus.py"
_REQUEST_FAULTS = "tests/faults/test_request_faults.py"
_RULES = "tests/dashboards/test_rules.py"
_SMUGGLING = "tests/taps/proxy/test_smuggling.py"
_STREAMS = "tests/blackbox/test_streams.py"
_STREAM_FAULTS = "tests/faults/test_stream_faults.py"
_UP = "tests/integration/test_up.py"
_UPSTREAM = "tests/taps/proxy/test_upstream.py"

ROWS = {
    "T6": Row(
        "an upstream closes a kept-alive connection up to 50 ms after its answer without announcing it",
        "no error that a fresh connection would not have had",
        (
            f"{_UPSTREAM}::test_f8_a_close_that_crosses_the_next_request_costs_no_request",
            f"{_UPSTREAM}::test_f8_a_server_that_closes_after_its_answers_costs_no_request",
            f"{_UPSTREAM}::test_connections_of_a_server_that_starts_to_close_early_are_no_longer_reused",
            f"{_UPSTREAM}::test_a_kept_connection_that_breaks_when_a_request_is_written",
        ),
    ),
    "T7": Row(
        "the data directory is full, then SIGTERM; then there is room again",
        "each read is delivered, or counted under its reason; the end of the log says what is lost; exit code 3",
        (
            f"{_DISK_FAULTS}::test_f9_an_ordered_stop_on_a_full_disk_reports_what_is_lost",
            f"{_DISK_FAULTS}::test_k6_disk_full",
        ),
    ),
    "T8": Row(
        "the native pump crashes again and again",
        "after three crashes in a minute the tap goes on without it, and says so; streams of others are recorded",
        (
            "tests/cli/test_pump_fallback.py::test_t8_a_tap_whose_relay_crashes_three_times_relays_and_records_without_the_pump",
        ),
    ),
    "T9": Row(
        "a second tap, agent or worker on the same data directory",
        "refused with one sentence; the first one is not disturbed",
        (
            f"{_MAIN}::test_t9_a_data_directory_in_use",
            "tests/cli/test_worker.py::test_f13_a_second_worker_on_a_data_directory_is_refused",
        ),
    ),
    "U1": Row(
        "a client leaves at the first byte, midway, after the last",
        "the upstream is cancelled; the outcome is `client_abort`, or `completed` after the protocol's end; usage"
        " that came before is `partial`, and null if none came",
        (
            f"{_STREAM_FAULTS}::test_u1_a_client_that_leaves_at_the_first_byte_midway_and_after_the_last",
            f"{_STREAMS}::test_u1_a_client_that_leaves_anywhere_cancels_the_upstream",
        ),
    ),
    "U2": Row(
        "an upstream resets, ends early, ends without the protocol's end, ends TLS without close_notify, or is silent",
        "the client sees the same break, and the record has the outcome with its cause",
        (
            f"{_STREAM_FAULTS}::test_u2_an_upstream_that_breaks_is_seen_by_the_client_and_named_in_the_record",
            f"{_STREAMS}::test_u2_a_stream_cut_anywhere_in_any_way",
            f"{_ANSWERS}::test_u2_silence_ends_at_the_idle_timeout",
            f"{_ANSWERS}::test_u2_no_head_is_a_502_and_an_upstream_reset",
            "tests/taps/proxy/test_tls.py::test_u2_an_end_without_close_notify_is_not_complete",
        ),
    ),
    "U3": Row(
        "200 and an error in band; 429 and 5xx as JSON; an HTML page of an error; a redirect",
        "outcome, phase and type of the error are right; a page of an error is never read as events",
        (
            f"{_ANSWERS}::test_u3_every_error_in_band_is_a_stream_error",
            f"{_ANSWERS}::test_u3_responses_that_are_not_streams",
        ),
    ),
    "U4": Row(
        "usage that is missing, repeated, negative, beyond 2^63, a float, a string",
        "the last valid value counts; bad values are counted; cost is exact (decimal), and null where usage is unknown",
        (f"{_STREAM_FAULTS}::test_u4_the_last_valid_usage_counts_and_costs_exactly",),
    ),
    "P1": Row(
        "an event of 50 MB; a line that never ends (96 MiB; 1 GiB by `make faults`); the same faster than it can be"
        " read",
        "the bytes pass; the record says `oversized_event`; memory stays flat; what is too fast is dropped and counted",
        (f"{_PARSER_FAULTS}::test_p1_an_event_of_50_mb_and_a_line_that_never_ends",),
    ),
    "P2": Row(
        "invalid UTF-8, a byte order mark, split code points, a lone surrogate, NUL, and CR, LF, CR LF mixed, split"
        " anywhere",
        "the same record for each split; nothing raises",
        (
            f"{_PARSER_FAULTS}::test_p2_odd_bytes_give_one_record_whatever_the_split",
            f"{_STREAMS}::test_p2_every_framing_coding_and_line_end",
        ),
    ),
    "P3": Row(
        "JSON nested 100,000 deep, numbers of 100,000 digits, duplicate and many keys, NaN: in events, whole"
        " responses, errors and requests",
        "the bytes pass; time and memory are bounded; nothing raises",
        (f"{_PARSER_FAULTS}::test_p3_json_that_is_deep_long_or_no_json_neither_raises_nor_stalls",),
    ),
    "P4": Row(
        "gzip, deflate, br and zstd; several members; a wrong header; bombs that grow a thousandfold",
        "the bytes pass untouched; the record says `bomb`, `corrupt`, ...; memory stays flat",
        (
            f"{_PARSER_FAULTS}::test_p4_compressed_bodies_pass_untouched_and_bombs_are_not_inflated",
            f"{_BODY}::test_p4_a_bomb_does_not_grow_memory",
        ),
    ),
    "P5": Row(
        "open compressed responses with the largest windows, empty members, tiny events by the million",
        "memory within its budget; the records of other streams come as early as before",
        (
            "tests/recorder/test_decoder_memory.py::test_p5_open_streams_with_the_largest_windows_stay_within_their_memory",
            f"{_BODY}::test_empty_members_within_a_coding_count",
            "tests/faults/test_greedy.py::test_p5_floods_of_tiny_events_do_not_delay_the_records_of_others",
        ),
    ),
    "H1": Row(
        "request smuggling: both framing fields, two lengths, folded lines, bare LF and CR, NUL, chunk extensions,"
        " HTTP/1.0 with chunks, absolute form to another host",
        "refused, or exactly one well-formed request at the upstream",
        (
            f"{_SMUGGLING}::test_h1_raw_requests",
            "tests/taps/proxy/test_fuzzed_requests.py::test_the_upstream_gets_what_the_clients_sent",
            "tests/blackbox/test_requests.py::test_h1_refused_requests_reach_no_upstream",
        ),
    ),
    "H2": Row(
        "line ends, escapes, invalid UTF-8 and encoded surrogates in headers and targets",
        "refused, or passed on byte for byte in one line; never in a log, raw neither in a record nor in a metric",
        (f"{_REQUEST_FAULTS}::test_h2_values_of_headers_add_no_line_upstream_and_never_reach_a_log",),
    ),
    "H3": Row(
        "headers, URLs and bodies that are too many or too large; prompts of 100 MB",
        "431 and 413 by settings; a prompt of 100 MB passes in bounded memory",
        (
            f"{_LIMITS}::test_h3_a_body_beyond_the_setting_is_a_413",
            f"{_LIMITS}::test_h3_heads_have_the_limit_of_the_setting",
            f"{_LIMITS}::test_h3_a_prompt_of_100_mb_passes_in_bounded_memory",
        ),
    ),
    "H4": Row(
        "a head that equals an earlier one but for its length; early answers to bodies that were not read; pipelining"
        " after them",
        "one request upstream for each request of a client; a connection with an unread body is never used again",
        (
            f"{_SMUGGLING}::test_h4_an_empty_length_is_refused_after_any_request",
            f"{_EARLY_ANSWERS}::test_h4_the_connection_is_not_used_again",
            f"{_EARLY_ANSWERS}::test_h4_the_connection_is_not_used_again_without_the_pump",
        ),
    ),
    "H5": Row(
        "requests that are pipelined while a slow response runs; clients that leave meanwhile",
        "bounded, for each client and for all together; freed when they leave",
        (
            f"{_CLIENT}::test_h5_too_many_pipelined_requests_are_refused_after_the_running_response",
            f"{_CLIENT}::test_h5_connections_of_clients_that_pipeline_and_leave_are_released",
            f"{_CLIENT}::test_h5_all_clients_together_have_one_memory_limit",
            f"{_REQUEST_FAULTS}::test_h5_what_clients_pipeline_after_a_slow_response_is_bounded_and_freed_when_they_leave",
        ),
    ),
    "L1": Row(
        "20,000 model names; names of a MB, with quotes, line ends and any Unicode",
        "series within the budget of the page, the rest in `other`, by their upstream; a scrape below 0.4 s of CPU; the page"
        " parses",
        (
            f"{_PROMETHEUS}::test_l1_20_000_models_stay_within_their_budget_and_the_page",
            f"{_PROMETHEUS}::test_l1_hostile_names_neither_grow_the_page_nor_slow_a_scrape",
            f"{_PROMETHEUS}::test_l1_whatever_a_label_holds_the_page_parses",
            f"{_REQUEST_FAULTS}::test_l1_hostile_model_names_stay_within_the_page",
            f"{_REQUEST_FAULTS}::test_l1_a_scrape_beside_many_names_is_valid_openmetrics",
        ),
    ),
    "L2": Row(
        "ids of a forged record that are longer than an exemplar may be",
        "cut to the 128 characters of OpenMetrics; nothing raises",
        (f"{_PROMETHEUS}::test_l2_an_exemplar_of_a_forged_record_is_cut_to_what_is_allowed",),
    ),
    "L3": Row(
        "a partition moves, a model is not seen any more, a worker ends",
        "its gauges leave the page, and no alert fires by their last values; no gauge is kept for a model",
        (
            "tests/faults/test_gauges.py::test_l3_the_gauges_of_partitions_that_move_leave_the_page",
            "tests/worker/test_assignment.py::test_f1_the_gauges_of_a_partition_that_moved_away_leave_the_page",
            "tests/metrics/test_table.py::test_l3_no_gauge_is_kept_for_a_model_or_a_stream",
            "tests/metrics/test_rate_limits.py::test_a_value_goes_after_its_reset_and_not_before_some_scrapes",
            f"{_RULES}::test_it_fires_on_its_cases_alone",
        ),
    ),
    "L4": Row(
        "a metric that an alert needs is not there",
        "an alert says so",
        (
            f"{_RULES}::test_l4_every_metric_that_an_alert_needs_is_missed_if_it_is_not_there",
            f"{_RULES}::test_it_fires_on_its_cases_alone",
        ),
    ),
    "S1": Row(
        "secrets: marked values (canaries) in some thousand places of headers, queries, bodies and errors",
        "found in no spool, topic, dead letter, log, metric, page or ledger, except where the record's contract keeps"
        " a value; with `--capture full` the text of responses is in the spool and the segments, and nowhere else",
        (
            f"{_CANARY}::test_s1_canaries_are_found_only_where_the_contract_keeps_them",
            f"{_CANARY}::test_s1_full_capture_keeps_text_of_responses_alone_and_only_up_to_the_records",
            "tests/blackbox/test_secrets.py::test_s1_no_canary_anywhere_with_masking",
        ),
    ),
    "S2": Row(
        "choosing the upstream from outside: Host, absolute form, `//host`, `@`, redirects, decimal and IPv6"
        " addresses, 169.254.169.254, rebinding",
        "only configured upstreams are reached; the admin port refuses names that are not its own",
        (
            f"{_REQUEST_FAULTS}::test_s2_nothing_in_a_request_or_response_selects_another_server",
            f"{_REQUEST_FAULTS}::test_s2_a_page_of_another_site_cannot_read_the_admin_port_by_a_name_of_its_own",
            f"{_SMUGGLING}::test_h1_raw_requests",
        ),
    ),
    "S3": Row(
        "what listens: tap, agent and worker, all of their processes",
        "the data port and the admin port, on 127.0.0.1 unless a setting says otherwise, and nothing else; health"
        " shows no settings",
        (
            f"{_REQUEST_FAULTS}::test_s3_a_tap_listens_on_its_two_ports_of_this_host_alone",
            f"{_REQUEST_FAULTS}::test_s3_an_agent_listens_on_its_admin_port_alone",
            f"{_REQUEST_FAULTS}::test_s3_a_worker_listens_on_its_admin_port_alone",
        ),
    ),
    "S4": Row(
        "TLS and log-in: wrong authority, expired, another host, wrong password, another protocol, a password rotated",
        "nothing falls back to plain text; one sentence says what to do; traffic goes on; no secret in a log",
        (
            f"{_BROKER_SECURITY}::test_s4_refused_tap_serves_and_delivers_after_the_fix",
            f"{_BROKER_SECURITY}::test_s4_a_worker_and_a_command_that_are_refused_end_with_one_sentence",
            f"{_BROKER_SECURITY}::test_s4_nothing_falls_back_to_plain_text",
            f"{_BROKER_SECURITY}::test_s4_password_that_is_rotated_while_processes_run",
            f"{_BROKER_SECURITY}::test_s4_least_rights_suffice",
        ),
    ),
    "S5": Row(
        "a hostile producer: forged bundles, pickles, keys of 10 MB, nulls, compressed bombs, millions of reads,"
        " header names that are not text",
        "each is a dead letter; nothing is unpickled; memory stays flat",
        (
            f"{_POISON}::test_s5_a_hostile_producer",
            f"{_POISON}::test_s5_no_serializer_of_fausts_is_used",
            f"{_POISON}::test_s5_a_header_whose_name_is_no_text",
            f"{_POISON}::test_s5_broker_stores_compressed_batches_uncompressed",
        ),
    ),
    "S6": Row(
        "formulas and escapes in model names, tenants and ids",
        "exports are safe to open",
        (
            "tests/cli/test_ledger.py::test_s6_csv_holds_no_formula_and_the_other_outputs_are_unchanged",
            "tests/cli/test_ledger_export.py::test_s6_csv_has_the_columns_and_no_formula",
            f"{_AUDIT}::test_s6_html_shows_names_from_outside_as_text",
            "tests/cli/test_tables.py::test_no_reader_finds_a_cell_that_begins_a_formula",
        ),
    ),
    "S7": Row(
        "a copied data directory; links in it; modes that are too wide",
        "nothing that is not ours is deleted; refused, or a warning",
        (
            f"{_UP}::test_s7_a_tap_on_a_copied_data_directory_does_not_affect_the_running_tap",
            f"{_UP}::test_s7_a_directory_to_which_the_link_leads_keeps_its_files",
            f"{_MAIN}::test_s7_a_data_directory_that_every_user_may_change",
            f"{_MAIN}::test_s7_a_key_that_others_may_read",
            "tests/runtime/test_data_directory.py::test_another_user_s_directory_is_used_with_a_warning_or_refused",
        ),
    ),
    "D1": Row(
        "1 % undecodable messages; dead letters retried",
        "a dead letter holds the bytes, their source, stage, error class and versions; the offset moves on; a retry"
        " counts once",
        (
            f"{_POISON}::test_d1_one_unreadable_message_in_a_hundred",
            "tests/integration/test_versions.py::test_bundles_of_a_later_format_are_kept_and_can_be_returned_once",
        ),
    ),
    "D2": Row(
        "every message is undecodable; the dead letter topic accepts nothing",
        "limited rate, an alert, the process stays alive; other partitions are not affected",
        (
            f"{_POISON}::test_d2_all_partitions_but_one_are_unreadable",
            f"{_POISON}::test_d2_the_partition_waits_while_the_dead_letter_topic_is_missing",
            f"{_POISON}::test_d2_stopping_worker_leaves_the_unreadable_message_unacknowledged",
        ),
    ),
    "D3": Row(
        "in a partition all messages have the format of another version; or a client writes such messages between those"
        " of taps, or what is no bundle",
        "without readable messages the partition stops at `--dead-letter-limit`, says why, and an alert fires; nothing is"
        " dropped; other partitions are not affected; an upgraded worker continues, and so does the partition once a"
        " readable bundle comes. What a client writes beside a tap, and what is no bundle, stops nothing",
        (
            f"{_DEAD_LETTER_LIMIT}::test_d3_a_partition_stops_at_too_many_and_a_worker_with_another_limit_continues",
            f"{_DEAD_LETTER_LIMIT}::test_d3_foreign_messages_beside_those_of_a_tap_stop_nothing",
            f"{_DEAD_LETTER_LIMIT}::test_d3_what_is_no_bundle_stops_nothing",
            f"{_DEAD_LETTER_LIMIT}::test_d3_a_partition_that_has_stopped_continues_when_a_readable_bundle_comes",
            f"{_DEAD_LETTER_LIMIT}::test_d3_a_readable_bundle_is_found_after_more_than_the_queue_holds",
            f"{_DEAD_LETTER_LIMIT}::test_d3_a_partition_that_has_stopped_is_not_stuck",
        ),
    ),
    "A1": Row(
        "inputs of an audit: a wrong price, a missing day, another time zone, another currency, cents for dollars,"
        " duplicate lines, an export that was issued again",
        "each is named with its cause, and never agrees; a second run gives the same bytes",
        (
            "tests/audit/world/test_world.py::test_a1_a_planted_error_is_found_and_named",
            "tests/audit/invoices/test_contract.py::test_a1_a_row_keeps_its_currency",
            f"{_AUDIT}::test_a1_an_invoice_that_was_issued_again_shows",
            f"{_AUDIT}::test_a1_the_bytes_do_not_depend_on_time_zone_hash_seed_or_order",
        ),
    ),
    "N1": Row(
        "Envoy reports 200 streams at one time: clients leave, upstreams reset or end early; request ids repeat or are"
        " missing",
        "each has the outcome that Envoy's access log tells; what it cannot tell is unknown, and counted by its reason",
        (
            f"{_ENVOY}::test_n1_each_of_many_streams_at_once_has_its_outcome",
            f"{_ENVOY}::test_requests_with_one_id_are_told_apart_by_their_start",
            f"{_ENVOY}::test_n1_what_cannot_be_joined_is_unknown",
        ),
    ),
    "N2": Row(
        "the tap that an Envoy reports to is killed, stopped, slow, or not there",
        "the traffic is as without it; it captures what begins once it runs again",
        (
            f"{_ENVOY}::test_n2_the_traffic_is_as_without_a_tap",
            f"{_ENVOY}::test_n2_a_stopped_tap_would_stall_the_traffic_without_the_guides_settings",
            f"{_ENVOY}::test_n2_a_slow_tap_slows_no_stream",
            f"{_ENVOY}::test_n2_a_tap_that_starts_again_records_what_begins_then",
        ),
    ),
    "V1": Row(
        "the oldest and the newest allowed versions of faust-streaming, mode-streaming and aiokafka; each supported"
        " interpreter (`make interpreters`)",
        "the same records",
        (
            "tests/integration/test_oldest_versions.py::test_v1_workers_with_the_oldest_versions_make_the_same_records",
            "tests/core/test_vectors.py::test_the_record_is_that_of_the_documents",
        ),
    ),
}
