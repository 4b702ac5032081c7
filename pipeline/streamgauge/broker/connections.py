"""A connection that breaks while it is written to.

uvloop raises RuntimeError for a write to a transport that it has closed, and it closes one as soon as it hears of a reset.
aiokafka's connection learns of that a turn of the loop later, and expects OSError. The RuntimeError then ends the task that
wrote: a client's metadata task ends without a word, and all that waits for metadata after that waits without end.
"""

from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason  # type: ignore[import-untyped]
from aiokafka.errors import KafkaConnectionError  # type: ignore[import-untyped]

_SENDS = ("send", "_send_sasl_token")


def break_as_expected() -> None:
    """Have aiokafka's connections raise KafkaConnectionError where the transport was closed under them. Twice is as once."""
    for name in _SENDS:
        send = getattr(AIOKafkaConnection, name)
        if not hasattr(send, "breaks_as_expected"):
            setattr(AIOKafkaConnection, name, _translated(send))


def _translated(send: Any) -> Any:
    def translated(self: AIOKafkaConnection, *given: Any, **more: Any) -> Any:
        try:
            return send(self, *given, **more)
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self.host}:{self.port} broken: {error}") from error

    translated.breaks_as_expected = True  # type: ignore[attr-defined]
    return translated
