"""The OpenAI client on its streams of transcription, speech and images: its events, with text joined.

The client has no types for the events of speech; it returns the bytes of the response.
"""

import json
from typing import Any

from tests.differential.openai_chat import OpenAIOracle, make_client
from tests.differential.reading import Reading, TokenUsage


def _usage_of(event: dict[str, Any]) -> TokenUsage | None:
    usage = event.get("usage")
    return TokenUsage(*map(usage.get, ("input_tokens", "output_tokens", "total_tokens"))) if usage else None


class Transcription(OpenAIOracle):
    """The text of a transcription's events. That of the last event is all of it."""

    name = "openai audio.transcriptions.create"
    dialect = "openai-transcription"
    unsupported = frozenset({"reasoning", "refusal", "calls", "finish", "cached", "reasoning_tokens"})

    def read(self, url: str, reading: Reading) -> None:
        audio = ("a.wav", b"RIFF")
        with (
            make_client(url) as client,
            client.audio.transcriptions.create(model="m", file=audio, stream=True) as stream,
        ):
            output, segments = reading.choice(0), ""
            for event in stream:
                if event.type == "transcript.text.delta":
                    output.text += event.delta
                elif event.type == "transcript.text.segment":
                    segments += event.text
                elif event.type == "transcript.text.done":
                    output.text = output.text or segments or event.text
                    reading.usage = _usage_of(event.to_dict())
            output.text = output.text or segments


class Images(OpenAIOracle):
    """The events of images, by their types alone: the core's reading has no images."""

    name = "openai images.generate"
    dialect = "openai-images"
    unsupported = frozenset({"reasoning", "refusal", "calls", "finish", "cached", "reasoning_tokens"})

    def read(self, url: str, reading: Reading) -> None:
        with make_client(url) as client, client.images.generate(model="m", prompt="q", stream=True) as stream:
            for event in stream:
                assert event.b64_json is not None
                if event.type.endswith(".completed"):
                    reading.usage = _usage_of(event.to_dict())


class Speech(OpenAIOracle):
    """The events of speech, from the lines that the client returns."""

    name = "openai audio.speech.with_streaming_response.create"
    dialect = "openai-speech"
    unsupported = frozenset({"ended", "reasoning", "refusal", "calls", "finish", "cached", "reasoning_tokens"})

    def read(self, url: str, reading: Reading) -> None:
        request: dict[str, Any] = {"model": "m", "voice": "alloy", "input": "q", "stream_format": "sse"}
        with make_client(url) as client, client.audio.speech.with_streaming_response.create(**request) as response:
            for line in response.iter_lines():
                text = line.removeprefix("data: ")
                event = json.loads(text) if text.startswith("{") else {}
                if event.get("type") == "speech.audio.done":
                    reading.usage = _usage_of(event)
