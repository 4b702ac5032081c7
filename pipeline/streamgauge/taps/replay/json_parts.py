"""Parts of a large JSON document, decoded one at a time: the items of a list stay raw bytes until they are used."""

from collections.abc import Mapping, Sequence

import msgspec

from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.taps.replay.contract import BrokenRecording

_Decoder = msgspec.json.Decoder[dict[str, msgspec.Raw]] | msgspec.json.Decoder[list[msgspec.Raw]]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def members(part: object) -> Mapping[str, object]:
    """The members of an object, each a raw part; empty if it is not an object. Raises BrokenRecording if it is not JSON."""
    whole = _decoded(part, _MEMBERS)
    return whole if isinstance(whole, dict) else {}


def items(part: object) -> Sequence[object] | None:
    """The items of a list, each a raw part; None if it is not a list. Raises BrokenRecording if it is not JSON."""
    whole = _decoded(part, _ITEMS)
    return whole if isinstance(whole, list) else None


def decoded(part: object) -> object:
    """A part, decoded whole; UNPARSED if it is not JSON or is nested too deeply."""
    return parse(bytes(part)) if isinstance(part, memoryview | msgspec.Raw) else part


def _decoded(part: object, decoder: _Decoder) -> object:
    if not isinstance(part, memoryview | msgspec.Raw):
        return part
    try:
        return decoder.decode(part)
    except msgspec.ValidationError:  # JSON of another shape
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _lenient(part, error)


def _lenient(part: memoryview | msgspec.Raw, error: Exception) -> object:
    """Decodes what is nearly JSON (NaN). Raises BrokenRecording, with the place, for anything else."""
    whole = parse(bytes(part))
    if whole is UNPARSED:
        where = str(error) if isinstance(error, msgspec.DecodeError) else "it is nested too deeply"
        raise BrokenRecording(f"it is not valid JSON ({where})")
    return whole
