"""`streamgauge demo`: `up` in front of simulated providers, driven by the official clients."""

import asyncio
import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamgauge.cli.parser import JSON, Arguments
from streamgauge.cli.supervisor import running_tap
from streamgauge.errors import DONE, INTERRUPTED, UsageFault
from streamgauge.ledger import Reader, open_ledger
from streamgauge.runtime.child import say
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.stopping import StopSignal
from streamgauge.settings.declarations import SETTINGS, Settings
from streamgauge.settings.types import Upstream

if TYPE_CHECKING:
    from streamgauge_demo.verdict import Json

# The newest records, which are read at each look: far more than the demo's streams that run at one time.
NEWEST = 500

# No list has a price of a simulated provider. Without any, the page and the reports of the demo would show no cost.
_PRICES = """\
# Prices of the demo's simulated providers, in USD for a million tokens. They are invented.
[[price]]
model = "*"
from = 2026-01-01
input = 1.0
input_cached = 0.1
output = 5.0
"""

_ANY_PORT = Address(host="127.0.0.1", port=0)


def run(settings: Settings, args: Arguments) -> int:
    """Runs the demo. Returns 0 if all results were as expected, else 1; with --serve 0. Ctrl-C before that: INTERRUPTED."""
    from streamgauge_demo.run import UPSTREAM_IDLE_TIMEOUT_S, run_demo

    async def demo(data_dir: Path, discard: Callable[[], None] | None = None) -> int:
        signals = StopSignal("demo", say, lambda: "its streams are cut off, and it prints no summary")
        signals.before_exit = discard
        stop = signals.stop

        @contextlib.asynccontextmanager
        async def start_up(upstreams: Mapping[str, str]) -> AsyncIterator[DemoTap]:
            changed = replace(
                settings,
                prices=_write_prices(data_dir),
                upstream=tuple(Upstream(name=name, url=url) for name, url in upstreams.items()),
                upstream_idle_timeout=UPSTREAM_IDLE_TIMEOUT_S,
                drain_timeout=min(settings.drain_timeout, UPSTREAM_IDLE_TIMEOUT_S),
                data_dir=data_dir,
                otlp=None,  # the environment may name a receiver: simulated streams are not for it
                otlp_header=(),
                listen=settings.listen if "listen" in settings.given else _ANY_PORT,
                admin=admin_address(settings, serve=args.serve),
            )
            async with running_tap(changed, "ledger", "demo") as tap:
                say(f"demo: {tap.pages}, data in {data_dir}")
                with open_ledger(changed.ledger_url, create=False) as ledger:
                    yield DemoTap(f"http://{tap.address}", ledger)

        playing = asyncio.ensure_future(run_demo(start_up, serve=args.serve, stop=stop, as_json=args.output == JSON))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({playing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done() and not args.serve:
            playing.cancel()  # Ctrl-C: a summary of half a demo is useless
        stopping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            code = await playing
            if not args.serve:
                say(f"demo: `{_program()} demo --serve` plays until Ctrl-C, with a page to look at")
            return code
        return INTERRUPTED if signals.first == signal.SIGINT else DONE

    if "data_dir" in settings.given:
        _check_data_dir(settings)
        return asyncio.run(demo(settings.data_dir))
    with tempfile.TemporaryDirectory(prefix="streamgauge-demo-") as folder:
        return asyncio.run(demo(Path(folder), lambda: shutil.rmtree(folder, ignore_errors=True)))


def admin_address(settings: Settings, *, serve: bool) -> Address:
    """The address of the admin port. With --serve it is fixed: `top` and the documents look for the page there."""
    return settings.admin if serve or "admin" in settings.given else _ANY_PORT


def _write_prices(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / "demo-prices.toml"
    file.write_text(_PRICES, encoding="utf-8")
    return file


def _program() -> str:
    """The command as it was called, such as .venv/bin/streamgauge."""
    return sys.argv[0] if Path(sys.argv[0]).name == "streamgauge" else "streamgauge"


def _check_data_dir(settings: Settings) -> None:
    """Rejects a directory with a ledger that the environment or a file names: it is that of a tap or worker, whose records
    simulated streams must not join.
    """
    origin = settings.given["data_dir"]
    if origin != SETTINGS["data_dir"].flag and (settings.data_dir / "ledger.sqlite").exists():
        raise UsageFault(
            f"the data directory {settings.data_dir} ({origin}) has a ledger, to which the demo would add simulated streams:"
            " give --data-dir DIR"
        )


class DemoTap:
    """The part of the running tap that the demo uses: its address and its records."""

    def __init__(self, url: str, ledger: Reader) -> None:
        self.url = url
        self._ledger = ledger
        self._seen = {record["stream_id"] for record in self._newest()}  # of an earlier demo

    async def records(self) -> "list[Json]":
        """The records that are new since the last call, by their start."""
        new = [record for record in await asyncio.to_thread(self._newest) if record["stream_id"] not in self._seen]
        self._seen.update(record["stream_id"] for record in new)
        return new[::-1]

    def _newest(self) -> "list[Json]":
        return [json.loads(record) for record in self._ledger.query(NEWEST, newest_first=True)]
