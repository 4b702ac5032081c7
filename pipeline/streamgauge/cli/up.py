"""`streamgauge up`: tap, assembler, metrics and ledger in one process group, without Kafka."""

import asyncio

from streamgauge.cli.parser import Arguments
from streamgauge.cli.supervisor import announce, running_tap, say_stopping, stop_signal, tap_settings
from streamgauge.runtime.log_time import log_with_times
from streamgauge.settings.declarations import Settings


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C. Returns the exit code of the process group."""
    log_with_times()
    return asyncio.run(_run(tap_settings(settings, args, agent=args.agent), shows_streams=not args.quiet))


async def _run(settings: Settings, *, shows_streams: bool) -> int:
    stop = stop_signal("up", settings)
    async with running_tap(settings, "ledger", "up", shows_streams=shows_streams) as tap:
        announce("up", tap, settings)
        await stop.wait()
        say_stopping("up", settings)
    return tap.group.exit_code
