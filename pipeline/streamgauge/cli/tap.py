"""`streamgauge tap`: relay LLM traffic, and ship the captured data to Kafka.

With --agent it is an agent, which ships the data that taps in applications capture.
"""

import asyncio

from streamgauge.cli.parser import Arguments
from streamgauge.cli.supervisor import (
    announce,
    running_tap,
    say_stopping,
    say_undelivered,
    stop_signal,
    tap_settings,
)
from streamgauge.errors import UsageFault
from streamgauge.runtime.log_time import log_with_times
from streamgauge.settings.declarations import Settings


def run(settings: Settings, args: Arguments) -> int:
    """Runs until SIGTERM or Ctrl-C. It starts, and continues to run, while the broker is unavailable."""
    if not settings.kafka:
        raise UsageFault("--kafka HOST:PORT is missing: give a broker, or run `streamgauge up` without Kafka")
    log_with_times()
    return asyncio.run(_run(tap_settings(settings, args, agent=args.agent)))


async def _run(settings: Settings) -> int:
    stop = stop_signal("tap", settings)
    async with running_tap(settings, "kafka", "tap") as tap:
        announce("tap", tap, settings)
        await stop.wait()
        say_stopping("tap", settings)
    say_undelivered("tap", settings)
    return tap.group.exit_code
