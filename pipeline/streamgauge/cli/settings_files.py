"""The files of the settings with prices, budgets and tenants, as a process uses them.

A command that starts refuses a file that it cannot use. A collector that starts again after a crash must capture: it uses the
content that the file had when its tap started, or else nothing, and says so in its log, in `settings_file_unusable`, and at
/health/ready.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from streamgauge.cli.tenants_file import read_tenants
from streamgauge.errors import UsageFault
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Sample
from streamgauge.settings.declarations import SETTINGS, Settings

if TYPE_CHECKING:  # a tap without a ledger has no library of prices
    from streamgauge.ledger.budgets import Budgets
    from streamgauge.prices.price_file import PriceFile

FILES = ("prices", "budgets", "tenants")
# The largest content that a supervisor keeps for its collectors (bytes): 10,000 prices have 1 MiB.
MAX_KEPT_BYTES = 4 * 1024 * 1024

_T = TypeVar("_T")


class SettingsFiles:
    """Reads each file once. `kept`: earlier contents, by setting (`kept_contents`), for a collector that was started again.
    If it is None, a file that cannot be used raises UsageFault. `say` takes a sentence about such a file.
    """

    def __init__(
        self, settings: Settings, kept: Mapping[str, bytes] | None = None, say: Callable[[str], object] = lambda _: None
    ) -> None:
        self._paths: dict[str, Path | None] = {name: getattr(settings, name) for name in FILES}
        self._kept, self._say = kept, say
        self._read: dict[str, object] = {}
        self._unusable: dict[str, str] = {}  # what is used in place of a file

    def prices(self) -> "PriceFile":
        """The operator's own prices; none without a file."""
        from streamgauge.prices.price_file import NO_PRICES, load_prices

        return self._content("prices", load_prices, NO_PRICES)

    def budgets(self) -> "Budgets | None":
        """The budgets; None without a file."""
        from streamgauge.ledger.budgets import load_budgets

        return self._content("budgets", load_budgets, None)

    def tenants(self) -> dict[str, str]:
        """The tenants by credential_id; empty without a file."""
        return self._content("tenants", read_tenants, {})

    def notes(self) -> list[str]:
        """A line for each file that cannot be used, without its path: health has no token."""
        return [f"{SETTINGS[name].flag}: the file cannot be used; {used}" for name, used in self._unusable.items()]

    def samples(self) -> Iterator[Sample]:
        """Whether each file could not be used; a file that is not given can be."""
        for name in FILES:
            yield Sample(table.SETTINGS_FILE_UNUSABLE.name, float(name in self._unusable), {"setting": name})

    def _content(self, name: str, load: Callable[[Path, bytes | None], _T], nothing: _T) -> _T:
        path = self._paths[name]
        if path is None:
            return nothing
        if name not in self._read:
            self._read[name] = self._load(name, path, load, nothing)
        return self._read[name]  # type: ignore[return-value]

    def _load(self, name: str, path: Path, load: Callable[[Path, bytes | None], _T], nothing: _T) -> _T:
        try:
            return load(path, None)
        except UsageFault as error:
            if self._kept is None:
                raise
            sentence = str(error)
        used, content = f"there are no {name}", nothing
        try:
            if name in self._kept:
                content = load(path, self._kept[name])
                used = "its content at the start of the tap is used"
        except UsageFault:  # it changed between the start of the tap and that of its first collector
            pass
        self._unusable[name] = used
        self._say(f"{sentence}; {used}: correct the file, since the next start refuses it")
        return content


def kept_contents(settings: Settings) -> dict[str, bytes]:
    """The contents of the files, by setting. A file that cannot be read, or is above MAX_KEPT_BYTES, is left out."""
    contents: dict[str, bytes] = {}
    for name in FILES:
        path: Path | None = getattr(settings, name)
        try:
            content = b"" if path is None else path.read_bytes()
        except OSError:  # the first collector refuses it
            continue
        if path is not None and len(content) <= MAX_KEPT_BYTES:
            contents[name] = content
    return contents
