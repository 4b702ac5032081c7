"""The metrics of calls of JSON-RPC: of tools (Model Context Protocol) and of other agents (Agent2Agent)."""

from collections.abc import Mapping

from streamgauge.core.formats.json_rpc import CallResult
from streamgauge.metrics import table
from streamgauge.metrics.otel_names import MCP_DURATION, OtelNames
from streamgauge.metrics.series import Family


class CallObserver:
    """Adds calls to the families. Not thread-safe: `prometheus.Metrics` holds the lock."""

    def __init__(self, families: Mapping[str, Family], otel_names: OtelNames) -> None:
        self._durations, self._unmeasured = (
            families[row.name] for row in (table.CALL_DURATION, table.UNMEASURED_CALLS)
        )
        otel = MCP_DURATION.metric(otel_names)
        self._otel = None if otel is None else families[otel.name]

    def observe(self, result: CallResult) -> None:
        """Adds one call that has ended."""
        call, upstream = result.call, result.upstream
        if result.duration_s is None:
            reason = result.unmeasured and result.unmeasured.value
            self._unmeasured.add(self._unmeasured.key_of_values((upstream, call.protocol, reason)), 1)
            return
        outcome = (call.method, call.tool, result.error_type)
        key = self._durations.key_of_values((upstream, call.protocol, *outcome))
        self._durations.observe(key, result.duration_s, None)
        if self._otel is not None and call.protocol == "mcp":
            self._otel.observe(self._otel.key_of_values(outcome), result.duration_s, None)
