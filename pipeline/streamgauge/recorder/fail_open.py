"""Capture fails open: a bug of ours ends a capture, and not the traffic."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Capture(Protocol):
    """What reports an exchange or a connection to the recorder."""

    def fail(self, error: Exception) -> None:
        """Ends the capture after an internal error. Raises nothing."""


_Capture = TypeVar("_Capture", bound=Capture)
_Arguments = ParamSpec("_Arguments")
_Method = Callable[Concatenate[_Capture, _Arguments], None]


def fails_open(method: _Method[_Capture, _Arguments]) -> _Method[_Capture, _Arguments]:
    """Makes a method raise nothing: a bug in it ends the capture, and the exchange continues."""

    @wraps(method)
    def guarded(self: _Capture, /, *args: _Arguments.args, **options: _Arguments.kwargs) -> None:
        try:
            method(self, *args, **options)
        # Any exception is a bug of ours, of any type. It is reported, and must not reach the traffic that the tap forwards.
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    return guarded
