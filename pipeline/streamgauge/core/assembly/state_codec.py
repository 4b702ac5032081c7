"""An entry of the state as bytes: `SGS`, the version of its format, then MessagePack.

Structs of the state are arrays: a field is added at the end, with a default, so that an entry of an older program is read
by a newer one and the other way round; the version stays. It changes only where an older program would misread an entry:
then that one has to refuse it, and leave it as it is. Entries of programs before 0.2 have no version and begin with
MessagePack's mark of an array.
"""

import msgspec

STATE_VERSION = 1

_MAGIC = b"SGS"
_HEAD = _MAGIC + bytes((STATE_VERSION,))


class NewerStateError(msgspec.DecodeError):
    """State that a later version wrote: whoever goes on without it makes other records, and overwrites it."""


def encode_entry(content: bytes) -> bytes:
    """An entry of this version."""
    return _HEAD + content


def decode_entry(entry: bytes) -> memoryview:
    """The MessagePack of an entry, whatever its age. Raises NewerStateError; judges nothing else."""
    if entry[:4] == _HEAD:
        return memoryview(entry)[4:]
    if entry[:3] != _MAGIC or len(entry) < 4:
        return memoryview(entry)
    raise NewerStateError(
        f"a later version wrote the state in format {entry[3]}, this one reads up to {STATE_VERSION}: run the later version"
    )
