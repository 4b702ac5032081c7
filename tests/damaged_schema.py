"""SQLite files whose schema has a byte that is no UTF-8: SQLite quotes damaged names in its errors."""

from collections.abc import Iterator
from pathlib import Path

# Of the bytes of the schema, one in so many is damaged in turn: each takes a whole file.
_EACH = 5


def damaged_in_turn(path: Path) -> Iterator[None]:
    """Damages one byte of the schema after the other, each time in the file as it was. No process has it open."""
    content = path.read_bytes()
    begin, end = content.index(b"CREATE "), content.rindex(b"CREATE ") + 200
    for place in range(begin, min(end, len(content)), _EACH):
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x80]) + content[place + 1 :])
        yield
