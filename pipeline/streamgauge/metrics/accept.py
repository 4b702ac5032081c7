"""Which format of the page a scraper asks for, by its Accept header."""

from collections.abc import Iterator

from streamgauge.metrics.text_format import TextFormat

_PROTOBUF = "application/vnd.google.protobuf"
_OPENMETRICS = "application/openmetrics-text"
_CLASSIC = "text/plain"


def wanted_format(accept: str) -> TextFormat | None:
    """The format with the highest weight (q) of those that we have, the first of equal ones; None: protobuf.

    The classic text format is for all other scrapers. Names keep their dots only for a scraper that asks for it
    (`escaping=allow-utf-8`) in a version of its format that can have them.
    """
    best: TextFormat | None = TextFormat()
    weight = 0.0
    for form, given in _ranges(accept):
        if given > weight:
            best, weight = form, given
    return best


def _ranges(accept: str) -> Iterator[tuple[TextFormat | None, float]]:
    for part in accept.split(","):
        media, *rest = [one.strip().lower() for one in part.split(";")]
        parameters = {name.strip(): value.strip() for name, _, value in (one.partition("=") for one in rest)}
        dots = parameters.get("escaping") == "allow-utf-8" and parameters.get("version", "").startswith("1.")
        if media == _OPENMETRICS:
            yield TextFormat(openmetrics=True, dots=dots), _weight(parameters.get("q"))
        elif media == _CLASSIC:
            yield TextFormat(dots=dots), _weight(parameters.get("q"))
        elif media == _PROTOBUF and parameters.get("encoding", "") == "delimited":
            yield None, _weight(parameters.get("q"))


def _weight(text: str | None) -> float:
    """A quality value between 0 and 1; 1 if there is none, or if it is none."""
    try:
        weight = float(text) if text is not None else 1.0
    except ValueError:
        return 1.0
    return weight if 0 <= weight <= 1 else 1.0
