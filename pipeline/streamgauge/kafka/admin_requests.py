"""Send a request for which aiokafka's admin client has no method of its own.

The admin client chooses the request's version from the versions that the broker supports, and sends the request with a
private method. Every other module uses `send`, so that a change of that private method concerns this module alone.
"""

from typing import Any

from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]


async def send(admin: AIOKafkaAdminClient, request: Any, node: int | None = None) -> Any:
    """Return the response of broker `node`, or of any broker if `node` is None. Raises KafkaError.

    Raises NotImplementedError or IncompatibleBrokerVersion if the broker does not support the request's version.
    """
    return await admin._send_request(request, node)
