"""One row of the table of faults in docs/reliability.md."""

from typing import NamedTuple


class Row(NamedTuple):
    """A fault, what is promised under it, and the tests that cause it.

    `tests`: node ids without parameters ("tests/faults/test_x.py::test_y"), or paths of test modules and vectors.
    """

    case: str
    promise: str
    tests: tuple[str, ...]
