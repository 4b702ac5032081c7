"""The admin port of a tap and of a worker. A worker imports nothing else that belongs to taps."""

import contextlib
from dataclasses import replace

from streamgauge.config import WORKER_ADMIN, Settings
from streamgauge.metrics.http_server import AdminAddressError, AdminServer
from streamgauge.runtime.listeners import not_available


async def start_admin_port(stack: contextlib.AsyncExitStack, admin: AdminServer, settings: Settings) -> None:
    """Opens the admin port until the stack exits. Raises Unavailable."""
    try:
        await admin.start(str(settings.admin))
    except AdminAddressError as error:
        if isinstance(error.__cause__, OSError):
            raise not_available(str(settings.admin), "--admin", error.__cause__) from None
        raise
    stack.push_async_callback(admin.stop)


def with_worker_admin_port(settings: Settings) -> Settings:
    """The settings with an admin port that differs from a tap's, if none is set."""
    return settings if "admin" in settings.given else replace(settings, admin=WORKER_ADMIN)
