"""Tokens by modality in the usage objects of each format."""

from typing import Any

import pytest

from streamgauge.core.modalities import NO_MODALITIES, Modalities, modalities_of


def listed(*elements: tuple[object, int], count: str = "tokenCount") -> list[dict[str, object]]:
    return [{"modality": modality, count: tokens} for modality, tokens in elements]


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (
            {
                "promptTokensDetails": listed(("TEXT", 5), ("IMAGE", 258), ("VIDEO", 0)),
                "toolUsePromptTokensDetails": listed(("TEXT", 7), ("DOCUMENT", 90)),
                "cacheTokensDetails": listed(("IMAGE", 200)),
                "candidatesTokensDetails": listed(("IMAGE", 1290)),
            },
            ({"text": 12, "image": 258, "video": 0, "document": 90}, {"image": 200}, {"image": 1290}),
        ),
        ({"responseTokensDetails": listed(("AUDIO", 30))}, ({}, {}, {"audio": 30})),
        (
            {"promptTokensDetails": listed((1, 5), (2, 6), (3, 7), (4, 8), (5, 9), (0, 10), (6, 11))},
            ({"text": 5, "image": 6, "video": 7, "audio": 8, "document": 9, "other": 21}, {}, {}),
        ),
        (
            {
                "input_tokens_by_modality": listed(("text", 5), ("audio", 6), count="tokens"),
                "tool_use_tokens_by_modality": listed(("text", 1), count="tokens"),
                "cached_tokens_by_modality": listed(("audio", 4), count="tokens"),
                "output_tokens_by_modality": listed(("video", 9), count="tokens"),
            },
            ({"text": 6, "audio": 6}, {"audio": 4}, {"video": 9}),
        ),
        (
            {
                "prompt_tokens_details": {"cached_tokens": 3, "image_tokens": 85, "audio_tokens": 0},
                "input_tokens_details": {"image_tokens": 0},
                "completion_tokens_details": {"image_tokens": 1120, "reasoning_tokens": 4},
            },
            ({"image": 85, "audio": 0}, {}, {"image": 1120}),
        ),
        (
            {
                "input_token_details": {
                    "cached_tokens": 6, "text_tokens": 5, "audio_tokens": 15,
                    "cached_tokens_details": {"text_tokens": 2, "audio_tokens": 4},
                },
                "output_token_details": {"text_tokens": 3, "audio_tokens": 20},
            },
            ({"text": 5, "audio": 15}, {"text": 2, "audio": 4}, {"text": 3, "audio": 20}),
        ),
    ],
)  # fmt: skip
def test_each_format_lists_its_modalities(raw: dict[str, Any], found: tuple[Any, Any, Any]) -> None:
    assert modalities_of(raw) == Modalities(*found)


@pytest.mark.parametrize(
    "details",
    [
        None, [], {}, "masked", 5, [None, 5, "IMAGE"], [{"modality": "IMAGE"}],
        [{"modality": "IMAGE", "tokenCount": -1}, {"modality": "IMAGE", "tokenCount": True}],
    ],
)  # fmt: skip
def test_what_is_no_list_of_counts_reports_nothing(details: object) -> None:
    raw = {"promptTokensDetails": details, "prompt_tokens_details": details}
    assert modalities_of(raw) == modalities_of(None) == NO_MODALITIES


@pytest.mark.parametrize("modality", ["MODALITY_UNSPECIFIED", "SMELL", "masked", None, True, 4.0, []])
def test_a_modality_that_is_not_known_is_none_of_the_others(modality: object) -> None:
    assert modalities_of({"promptTokensDetails": listed((modality, 7))}).input == {"other": 7}
