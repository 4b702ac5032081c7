"""The settings of the ledger, for those commands that write or read one. `config.py` has all others."""

from dataclasses import dataclass
from pathlib import Path

from streamgauge.setting_types import FILE, LEDGERS, declared, whole

# The commands that make records, those that read a ledger, and all that only use one.
TO_LEDGER = ("up", "up packets", "worker")
LEDGER_READERS = ("ledger query", "ledger export", "ledger budgets")
AUDIT_COMMANDS = ("audit", "audit list", "audit show", "audit diff")
LEDGER_COMMANDS = (*LEDGER_READERS, "ledger import", *AUDIT_COMMANDS)

_DAY_S = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """The settings of the ledger."""

    ledger: tuple[str, ...] = declared(
        LEDGERS,
        (),
        "database of the records: sqlite:///FILE or postgresql://USER@HOST/DATABASE; repeatable where it is only read",
        (*TO_LEDGER, *LEDGER_COMMANDS),
        "Storage",
        default_text="DATA_DIR/ledger.sqlite",
        secret=True,
    )
    ledger_file: Path | None = declared(
        FILE,
        None,
        "file that contains the URL of --ledger, which may hold a password; read once",
        (*TO_LEDGER, *LEDGER_COMMANDS),
        "Storage",
        content_of="ledger",
    )
    # A longer time than a century is a typing error.
    ledger_age: int | None = declared(
        whole(_DAY_S, 100 * 366 * _DAY_S, unit="seconds"),
        None,
        "delete the records of streams that started longer ago than this",
        TO_LEDGER,
        "Storage",
        default_text="no limit, nothing is deleted",
    )
    # An empty ledger has some 100 KB; the largest value is far more than a disk holds.
    ledger_bytes: int | None = declared(
        whole(1024**2, 1024**5, unit="bytes"),
        None,
        "largest size of a SQLite ledger: a full one stores nothing more, and new data waits in the spool or in Kafka",
        TO_LEDGER,
        "Storage",
        default_text="what leaves 1 GiB of its disk free (a tenth of a disk below 10 GiB)",
    )
    budgets: Path | None = declared(
        FILE,
        None,
        "TOML file of budgets of tenants or attributes for a month: metrics show what is spent",
        TO_LEDGER,
        "Operation",
    )
    prices: Path | None = declared(
        FILE,
        None,
        "TOML file of your own prices, which come before those of genai-prices",
        (*TO_LEDGER, "ledger import"),
        "Records",
    )
