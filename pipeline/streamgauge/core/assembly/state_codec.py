"""An entry of the state as bytes: `SGS`, the version of its format, then MessagePack.

Structs of the state are arrays. A new field is added at the end, with a default, so that older and newer programs can read
each other's entries; the version stays. The version changes only if an older program would misread an entry: the older
program then refuses the entry, and leaves it unchanged. Entries of programs before 0.2 have no version, and begin with
MessagePack's mark of an array.
"""

import msgspec

STATE_VERSION = 1

_MAGIC = b"SGS"
_HEAD = _MAGIC + bytes((STATE_VERSION,))


class NewerStateError(msgspec.DecodeError):
    """A later version wrote the state. A program that continued without it would overwrite it, and make other records."""


def encode_entry(content: bytes) -> bytes:
    """An entry of this version with this MessagePack content."""
    return _HEAD + content


def decode_entry(entry: bytes) -> memoryview:
    """The MessagePack of an entry of this or an older version, unchecked. Raises NewerStateError for a newer one."""
    if entry[:4] == _HEAD:
        return memoryview(entry)[4:]
    if entry[:3] != _MAGIC or len(entry) < 4:
        return memoryview(entry)
    raise NewerStateError(
        f"a later version wrote the state in format {entry[3]}, this one reads up to {STATE_VERSION}: run the later version"
    )


def offset_of(value: bytes) -> int:
    """The applied offset in a dumped value. Raises msgspec.DecodeError if it is damaged, NewerStateError if newer."""
    try:
        fields = msgspec.msgpack.decode(decode_entry(value), type=list[msgspec.Raw])
        if not fields:
            raise msgspec.DecodeError("an entry of the state without its offset")
        return msgspec.msgpack.decode(fields[0], type=int)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec raises these for damaged text, deep nesting
        raise msgspec.DecodeError(str(error)) from error
