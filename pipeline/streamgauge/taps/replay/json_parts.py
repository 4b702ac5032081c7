"""Parts of a large JSON document, unfolded one at a time: a list's items stay as they stand until they are looked at."""

from collections.abc import Mapping, Sequence

import msgspec

from streamgauge.core.formats.json_text import UNPARSED, parse
from streamgauge.taps.replay.contract import BrokenRecording

_Decoder = msgspec.json.Decoder[dict[str, msgspec.Raw]] | msgspec.json.Decoder[list[msgspec.Raw]]
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def members(part: object) -> Mapping[str, object]:
    """The members of an object, each a part; none of what is no object. Raises BrokenRecording for what is no JSON."""
    whole = _decoded(part, _MEMBERS)
    return whole if isinstance(whole, dict) else {}


def items(part: object) -> Sequence[object] | None:
    """The items of a list, each a part; None of what is no list. Raises BrokenRecording for what is no JSON."""
    whole = _decoded(part, _ITEMS)
    return whole if isinstance(whole, list) else None


def unfolded(part: object) -> object:
    """A part with all that is in it; UNPARSED if it is no JSON, or nested too deep."""
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
    """What is nearly JSON (NaN) is read whole; what is none says where it breaks."""
    whole = parse(bytes(part))
    if whole is UNPARSED:
        where = str(error) if isinstance(error, msgspec.DecodeError) else "it is nested too deeply"
        raise BrokenRecording(f"it is not valid JSON ({where})")
    return whole
