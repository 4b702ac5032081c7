"""What a ledger asks its database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def each_statement(look: Callable[..., Any]) -> Iterator[None]:
    """Calls `look` before each statement of any ledger: with the connection, the cursor, the statement and its parameters."""

    def called(connection: Any, cursor: Any, sql: str, parameters: Any, context: Any, many: bool) -> None:
        look(connection, cursor, sql, parameters)

    event.listen(Engine, "before_cursor_execute", called)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", called)
