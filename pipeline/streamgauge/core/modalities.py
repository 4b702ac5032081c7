"""Tokens by modality (text, image, video, audio, document), as a provider's usage object reports them. Pure.

Gemini               promptTokensDetails and toolUsePromptTokensDetails, cacheTokensDetails, candidatesTokensDetails (in
                     Gemini Live responseTokensDetails): lists of {modality, tokenCount}
Gemini Interactions  input_tokens_by_modality, tool_use_..., cached_..., output_...: lists of {modality, tokens}
OpenAI               prompt_tokens_details and completion_tokens_details (in Responses input_... and output_..., in
                     Realtime and transcription input_token_details and output_token_details): text_tokens,
                     image_tokens, video_tokens, audio_tokens; in Realtime the first has cached_tokens_details with the same
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from streamgauge.core.safe_values import whole_number

TEXT, IMAGE, VIDEO, AUDIO, DOCUMENT = "text", "image", "video", "audio", "document"
# A modality that this version does not know.
OTHER = "other"
# Google's enum as numbers, which clients get with `$alt=json;enum-encoding=int`: Modality in
# google/ai/generativelanguage/v1beta/content.proto and google/cloud/aiplatform/v1/content.proto.
NUMBERED: Mapping[int, str] = {1: TEXT, 2: IMAGE, 3: VIDEO, 4: AUDIO, 5: DOCUMENT}

_BY_NAME = {name: name for name in NUMBERED.values()}
_INPUT = (
    "promptTokensDetails",
    "toolUsePromptTokensDetails",
    "input_tokens_by_modality",
    "tool_use_tokens_by_modality",
)
_CACHED = ("cacheTokensDetails", "cached_tokens_by_modality")
_OUTPUT = ("candidatesTokensDetails", "responseTokensDetails", "output_tokens_by_modality")
_COUNTS = ("tokenCount", "tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details", "output_token_details")
_CACHED_DETAILS = "cached_tokens_details"  # a member of the details of the input
_DETAILS = {f"{name}_tokens": name for name in (TEXT, IMAGE, VIDEO, AUDIO)}


class Modalities(NamedTuple):
    """Tokens by modality: of the input, of what was read from the cache (which is a part of the input), of the output.

    A modality that is missing was not reported, which is not 0.
    """

    input: Mapping[str, int]
    cached: Mapping[str, int]
    output: Mapping[str, int]


NO_MODALITIES = Modalities({}, {}, {})


def modalities_of(raw: Mapping[str, object] | None) -> Modalities:
    """The tokens by modality of a usage object, which has the members that its dialect's allowlist names."""
    if raw is None:
        return NO_MODALITIES
    of_input = [raw.get(member) for member in _INPUT_DETAILS]
    of_cached = [details.get(_CACHED_DETAILS) for details in of_input if isinstance(details, dict)]
    of_output = [raw.get(member) for member in _OUTPUT_DETAILS]
    return Modalities(_sums(raw, _INPUT, of_input), _sums(raw, _CACHED, of_cached), _sums(raw, _OUTPUT, of_output))


def _sums(raw: Mapping[str, object], lists: tuple[str, ...], details: Sequence[object]) -> Mapping[str, int]:
    sums: dict[str, int] = {}
    for member in lists:
        if member in raw:
            for modality, tokens in _listed(raw[member]):
                sums[modality] = sums.get(modality, 0) + tokens
    for counts in details:
        if not isinstance(counts, dict):
            continue
        for name, modality in _DETAILS.items():
            if (count := whole_number(counts.get(name))) is not None:  # both members have the same counts, or one has 0
                sums[modality] = max(sums.get(modality, 0), count)
    return sums


def _listed(listed: object) -> Iterator[tuple[str, int]]:
    for element in listed if isinstance(listed, list) else ():
        if not isinstance(element, dict):
            continue
        tokens = next((count for name in _COUNTS if (count := whole_number(element.get(name))) is not None), None)
        if tokens is not None:
            yield _modality(element.get("modality")), tokens


def _modality(value: object) -> str:
    if isinstance(value, str):
        return _BY_NAME.get(value.lower(), OTHER)
    number = whole_number(value)
    return OTHER if number is None else NUMBERED.get(number, OTHER)
