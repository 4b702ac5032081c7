"""The benchmark of audits runs, and writes its section; how fast an audit is is not tested."""

from pathlib import Path

from bench import audit
from tests.bench.sections import written_section

# Memory of this process (MiB): more than an audit of small files takes.
OWN_MIB = 200


def test_a_month_and_invoices_are_compared_and_written(tmp_path: Path) -> None:
    own = b"1" * (OWN_MIB * 1024 * 1024)
    section = written_section("audit", audit.main, ["--rows=2000", "--bytes=100000"], tmp_path)
    head, _, month, *bills = section.splitlines()
    assert len(bills) == len(audit.BILLS)
    assert "a month of 170 records, in a ledger of 2,000" in month
    assert all(line.count("|") == head.count("|") for line in (month, *bills))
    memory = [float(line.split("|")[-2]) for line in (month, *bills)]
    assert all(0 < one < OWN_MIB for one in memory), "the memory of the process that starts an audit does not count"
    del own
