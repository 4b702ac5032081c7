"""The tokens of a record in groups of one kind each. The kinds are the names of prices in `Rates`. Pure.

The kind of a token follows from its side, from the cache, and from its modality, as far as the provider reports them:

- A modality that the usage lists has its tokens. If the listed tokens are fewer than the whole, the others are text, image or
  video, but of no modality that is listed. They are audio only if the provider says so.
- Cached tokens are of the modalities that the usage lists for them. If it lists none, and the input holds more than text,
  it is not known which tokens were read from the cache.
- A document may be read as text or as images.
"""

from collections.abc import Mapping
from typing import NamedTuple

from streamgauge.core.modalities import AUDIO, DOCUMENT, IMAGE, OTHER, TEXT, VIDEO
from streamgauge.ledger import LedgerRow

_UNCACHED = {TEXT: "input", IMAGE: "input_image", VIDEO: "input_video", AUDIO: "input_audio"}
_CACHED = {
    TEXT: "input_cached", IMAGE: "input_cached_image", VIDEO: "input_cached_video", AUDIO: "input_cached_audio"
}  # fmt: skip
_OUTPUT = {TEXT: "output", IMAGE: "output_image", VIDEO: "output_video", AUDIO: "output_audio"}
_VISUAL = (IMAGE, VIDEO)
# The modalities by which tokens of these are priced.
_PRICED_AS = {DOCUMENT: (TEXT, IMAGE), OTHER: (TEXT, IMAGE, VIDEO, AUDIO)}


class Group(NamedTuple):
    """Tokens of one kind. More than one of `kinds`: it is not known which. `others`: kinds that they may have, too, if the
    model has a price for them.
    """

    tokens: int
    kinds: tuple[str, ...]
    others: tuple[str, ...] = ()


def input_groups(row: LedgerRow) -> list[Group]:
    """The groups of the input. A group without tokens is left out."""
    cached, written = row.input_cached or 0, row.input_cache_write or 0
    uncached = (row.input_uncached or 0) + (row.input_audio or 0)
    reported, in_cache, _ = row.modalities
    named = _named(reported, row.input_audio)
    unnamed = _unnamed(reported, row.input_tokens or 0)
    groups = []
    if written:
        for_an_hour = min(row.input_cache_write_1h_tokens or 0, written)
        groups = [Group(written - for_an_hour, ("cache_write",)), Group(for_an_hour, ("cache_write_1h",))]
    if named and (written or sum(in_cache.values()) < cached):
        groups += [_mixed(cached, named, unnamed, _CACHED), _mixed(uncached, named, unnamed, _UNCACHED)]
    else:
        named_cached = _named(in_cache, None)
        left = {modality: max(tokens - named_cached.get(modality, 0), 0) for modality, tokens in named.items()}
        groups += _divided(cached, named_cached, unnamed, _CACHED)
        groups += _divided(uncached, left, unnamed, _UNCACHED)
    return [group for group in groups if group.tokens]


def output_groups(row: LedgerRow) -> list[Group]:
    """The groups of the output. A group without tokens is left out."""
    answer = (row.output_text or 0) + (row.output_audio or 0)
    reported = row.modalities.output
    groups = _divided(answer, _named(reported, row.output_audio), _unnamed(reported, answer), _OUTPUT)
    return [group for group in (Group(row.reasoning or 0, ("reasoning",)), *groups) if group.tokens]


def _named(reported: Mapping[str, int], audio: int | None) -> dict[str, int]:
    """The tokens of each modality but text. `audio`: as the record reports it."""
    named = {modality: tokens for modality, tokens in reported.items() if tokens and modality != TEXT}
    if audio and audio > named.get(AUDIO, 0):
        named[AUDIO] = audio
    return named


def _unnamed(reported: Mapping[str, int], whole: int) -> tuple[str, ...]:
    """The modalities besides text that tokens may have which are in no modality of the list."""
    if not reported:
        return _VISUAL
    if sum(reported.values()) >= whole:
        return ()
    return tuple([modality for modality in _VISUAL if modality not in reported])


def _divided(tokens: int, named: Mapping[str, int], unnamed: tuple[str, ...], kinds: Mapping[str, str]) -> list[Group]:
    """So many tokens by modality: those that are named, and the rest."""
    rest = tokens - sum(named.values())
    if rest < 0:  # the counts contradict each other
        return [_mixed(tokens, named, unnamed, kinds)]
    groups = [Group(count, _kinds_of(modality, kinds)) for modality, count in named.items()]
    return [*groups, Group(rest, (kinds[TEXT],), tuple([kinds[modality] for modality in unnamed]))]


def _mixed(tokens: int, named: Mapping[str, int], unnamed: tuple[str, ...], kinds: Mapping[str, str]) -> Group:
    """So many tokens of which each may be text, or of a modality that is named."""
    possible = [kind for modality in (TEXT, *named) for kind in _kinds_of(modality, kinds)]
    return Group(tokens, tuple(dict.fromkeys(possible)), tuple([kinds[modality] for modality in unnamed]))


def _kinds_of(modality: str, kinds: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([kinds[priced_as] for priced_as in _PRICED_AS.get(modality, (modality,))])
