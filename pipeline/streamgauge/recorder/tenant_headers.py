"""Checks that taps in applications and their agent read the tenant from the same request header. Pure.

Both have a setting for it. If the settings differ, no stream of the tap has a tenant from a header, and no error shows it:
so the agent warns, once for each header.
"""

from collections.abc import Callable

from streamgauge.core.safe_values import safe_code
from streamgauge.recorder.protocol import OFF_THE_WIRE, RequestStarted

# The most warnings, one for each header that the agent does not read. All applications of a host together have a few such
# headers; more warnings would add nothing.
MAX_WARNINGS = 8


class TenantHeaderCheck:
    """Compares each tap's tenant header with the agent's. `say` takes a sentence for the operator."""

    def __init__(self, tenant_header: str | None, say: Callable[[str], None]) -> None:
        self._ours = tenant_header.lower() if tenant_header else None
        self._say = say
        self._warned_of: set[str | None] = set()

    def check(self, opened: RequestStarted) -> None:
        """Check a stream that begins. Taps on the wire use the agent's own setting."""
        theirs = opened.tenant_header
        if (
            theirs == self._ours
            or opened.tap not in OFF_THE_WIRE
            or theirs in self._warned_of
            or len(self._warned_of) >= MAX_WARNINGS
        ):
            return
        if theirs is None and any(name == self._ours for name, _ in opened.headers):
            return  # a tap of an earlier version: it sends the header, but not its setting
        self._warned_of.add(theirs)
        self._say(self._sentence(opened.tap, theirs))

    def _sentence(self, tap: str, theirs: str | None) -> str:
        if theirs is None:
            return (
                f"a tap in an application ({tap}) has no tenant header, but this agent reads tenants from {self._ours}:"
                f" streams of this tap have no tenant. Set tenant_header={self._ours!r} in the tap, or"
                f" STREAMGAUGE_TENANT_HEADER={self._ours} in the environment of the application"
            )
        name = safe_code(theirs)
        if self._ours is None:
            return (
                f"a tap in an application ({tap}) reads tenants from the header {name}, but this agent has no"
                f" --tenant-header: streams of this tap have no tenant. Start the agent with --tenant-header {name}"
            )
        return (
            f"a tap in an application ({tap}) reads tenants from the header {name}, but this agent reads them from"
            f" {self._ours}: streams of this tap have no tenant. Set tenant_header={self._ours!r} in the tap, or start the"
            f" agent with --tenant-header {name}"
        )
