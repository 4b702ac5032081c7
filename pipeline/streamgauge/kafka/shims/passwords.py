"""Let aiokafka's clients read the password for each new connection, so that a rotated one is used.

Written for aiokafka 0.13 to 0.14, which has no method to change a client's password. Without this shim a rotated password
would require new clients, and Faust cannot replace its client. No public report.
"""

from typing import Any

from aiokafka.client import AIOKafkaClient  # type: ignore[import-untyped]

from streamgauge.runtime.secret import Secret

# The attribute in which a client keeps the password, and which it reads for each new connection.
_ATTRIBUTE = "_sasl_plain_password"


def read_passwords_late() -> None:
    """Patch aiokafka's clients to accept a Secret as the password, and to read it for each new connection. Idempotent."""
    if _ATTRIBUTE not in vars(AIOKafkaClient):
        setattr(AIOKafkaClient, _ATTRIBUTE, property(_read, _keep))


def _read(client: Any) -> str | None:
    kept = vars(client).get(_ATTRIBUTE)
    return kept.now() if isinstance(kept, Secret) else kept


def _keep(client: Any, password: Any) -> None:
    vars(client)[_ATTRIBUTE] = password
