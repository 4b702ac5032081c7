"""Which TCP and UDP addresses the processes of a command listen on, by /proc."""

from collections.abc import Iterator
from pathlib import Path

from tests.processes import children

_LISTENING = "0A"
_UNCONNECTED_UDP = "07"


def tree_of(pid: int) -> set[int]:
    """A process and all that it and its children started."""
    return {pid}.union(*(tree_of(child) for child in children(pid)))


def listening(pid: int) -> set[str]:
    """`tcp 127.0.0.1:8080` for each socket of the process and of its children that accepts connections or datagrams."""
    inodes = {inode for one in tree_of(pid) for inode in _sockets_of(one)}
    found = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            waits = _LISTENING if table.startswith("tcp") else _UNCONNECTED_UDP
            if fields[3] == waits and fields[9] in inodes:
                found.add(f"{table[:3]} {_address(fields[1])}")
    return found


def _sockets_of(pid: int) -> Iterator[str]:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    if len(words) == 1:
        return ".".join(map(str, words[0])) + f":{int(port, 16)}"
    return f"[{b''.join(words).hex(':', 2)}]:{int(port, 16)}"
