"""A SQLite ledger that has its largest size: traffic goes on, and the records that it does not take wait in the spool."""

from pathlib import Path

from tests.integration.provider import provider
from tests.integration.test_up import Stream
from tests.running import start_up, wait_for

# More than fit into a ledger of 1 MiB, at some 4 KB each.
STREAMS = 400
MIB = 1024**2
FULL = "it has its largest size (--ledger-bytes)"


def test_what_a_full_ledger_does_not_take_is_stored_when_it_has_room(tmp_path: Path) -> None:
    with provider() as small:
        with start_up({"small": small.url}, tmp_path, "--ledger-bytes", str(MIB)) as up:
            for number in range(1, STREAMS + 1):
                stream = Stream(up)
                assert stream.rest()
                stream.close()
                if number % 50 == 0:  # records that come together are stored together, or not at all
                    wait_for(lambda asked=number: FULL in up.log or len(up.records()) == asked, "the records")
            assert FULL in up.log
            assert 100 <= len(up.records()) < STREAMS
            metrics = up.metrics()
            assert 0.5 * MIB < metrics["streamgauge_ledger_bytes"] <= metrics["streamgauge_ledger_limit_bytes"] == MIB
            assert up.stop() == 0, up.log
        assert (tmp_path / "ledger.sqlite").stat().st_size <= MIB
        with start_up({"small": small.url}, tmp_path, "--ledger-bytes", str(64 * MIB)) as up:
            assert len(up.wait_for_records(STREAMS)) == STREAMS
            assert up.stop() == 0, up.log
