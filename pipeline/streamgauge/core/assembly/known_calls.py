"""Finds the known tool calls of a choice that an event tells of."""

import zlib
from collections.abc import Sequence

from streamgauge.core.assembly.state import ToolState
from streamgauge.core.dialects.contract import WholeCall
from streamgauge.core.safe_values import safe_id


def digest_of(call_id: object) -> int | None:
    """The digest by which the state keeps the id of a call; None for a call without an id."""
    label = safe_id(call_id) if isinstance(call_id, str) else None
    return None if label is None else zlib.crc32(label.encode())


def known_call(
    tools: Sequence[ToolState], key: int | None, digest: int | None, name: str | None, *, by_id: bool, in_pieces: bool
) -> ToolState | None:
    """The known call that a fragment belongs to; None if it begins a new one. See `Sink.tool`."""
    if key is None:
        return None
    if by_id and digest is not None:
        of_id = next((tool for tool in reversed(tools) if tool.call_digest == digest), None)
        if of_id is not None:
            return of_id
    for tool in reversed(tools):
        if tool.key != key:
            continue
        if digest is not None and tool.call_digest is not None:
            if tool.call_digest == digest:
                return tool
        elif name is None or tool.name in (None, name) or (in_pieces and digest is None and not tool.argument_chars):
            return tool
        else:
            return None
    return None


def matched(calls: Sequence[WholeCall], tools: Sequence[ToolState]) -> list[ToolState | None]:
    """The known call of each of these calls, None for a new one. No two have the same known call.

    Calls are known by their ids. Some gateways give a call another id in each event, so that the others are known by their
    name, in order.
    """
    left = list(tools)
    found: list[ToolState | None] = []
    for call in calls:
        digest = digest_of(call.call_id)
        found.append(_taken(left, [tool for tool in left if digest is not None and tool.call_digest == digest]))
    for at, call in enumerate(calls):
        if found[at] is None:
            name = safe_id(call.name) if isinstance(call.name, str) else None
            found[at] = _taken(left, [tool for tool in left if name is None or tool.name in (None, name)])
    return found


def _taken(left: list[ToolState], fitting: Sequence[ToolState]) -> ToolState | None:
    """The first of the calls that fit, which is then removed from those that are left."""
    if not fitting:
        return None
    left[:] = [tool for tool in left if tool is not fitting[0]]
    return fitting[0]
