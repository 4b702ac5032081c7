"""Rows of the table of faults: upstreams, parsers, HTTP, labels, security, dead letters, the audit, versions."""

from tests.faults.row import Row

# Ids that have no row yet.
PENDING = frozenset(
    [
        "T6",
        "T7",
        "T8",
        "T9",
        "U1",
        "U2",
        "U3",
        "U4",
        "P1",
        "P2",
        "P3",
        "P4",
        "P5",
        "H1",
        "H2",
        "H3",
        "H4",
        "H5",
        "L1",
        "L2",
        "L3",
        "L4",
        "S2",
        "S3",
        "S6",
        "S7",
        "D3",
        "A1",
        "V1",
    ]
)

_SECURITY = "tests/faults/test_broker_security.py"
_POISON = "tests/faults/test_poison.py"

ROWS = {
    "S1": Row(
        "secrets: marked values (canaries) in some thousand places",
        "found in no spool, topic, dead letter, log, metric or ledger, except where the record's contract keeps a value",
        ("tests/faults/test_canary.py::test_s1_canaries_are_found_only_where_the_contract_keeps_them",),
    ),
    "S4": Row(
        "TLS and log-in: wrong authority, expired, another host, wrong password, another protocol, a password rotated",
        "nothing falls back to plain text; one sentence says what to do; traffic goes on; no secret in a log",
        (
            f"{_SECURITY}::test_s4_refused_tap_serves_and_delivers_after_the_fix",
            f"{_SECURITY}::test_s4_a_worker_and_a_command_that_are_refused_end_with_one_sentence",
            f"{_SECURITY}::test_s4_nothing_falls_back_to_plain_text",
            f"{_SECURITY}::test_s4_password_that_is_rotated_while_processes_run",
            f"{_SECURITY}::test_s4_least_rights_suffice",
        ),
    ),
    "S5": Row(
        "a hostile producer: forged bundles, pickles, keys of 10 MB, nulls, compressed bombs, millions of reads, header"
        " names that are not text",
        "each is a dead letter; nothing is unpickled; memory stays flat",
        (
            f"{_POISON}::test_s5_a_hostile_producer",
            f"{_POISON}::test_s5_no_serializer_of_fausts_is_used",
            f"{_POISON}::test_s5_a_header_whose_name_is_no_text",
            f"{_POISON}::test_s5_broker_stores_compressed_batches_uncompressed",
        ),
    ),
    "D1": Row(
        "1 % undecodable messages; dead letters retried",
        "a dead letter holds the bytes, their source, stage, error class and versions; the offset moves on; a retry counts"
        " once",
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
}
