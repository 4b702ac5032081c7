"""Send a request for which aiokafka's administrator has no method of its own.

The administrator chooses the request's version by what the broker speaks, and sends it by a private method. Every other
module sends its requests by `send`, so that a change of that method concerns this module alone.
"""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]


async def send(admin: AIOKafkaAdminClient, request: Any, node: int | None = None) -> Any:
    """The answer of broker `node`, or of any broker. Raises KafkaError.

    Raises NotImplementedError or IncompatibleBrokerVersion where the broker does not speak the request's version.
    """
    return await admin._send_request(request, node)
