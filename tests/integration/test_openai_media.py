"""OpenAI's client through `streamgauge up`: streams of transcription, speech and images, each with its record."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from streamgauge_demo.provider import LAST_CHUNK, Provider, Script, answer, chunk, head
from tests.differential.openai_chat import make_client
from tests.running import Running, start_up

TEXT = "a river"
AUDIO = base64.b64encode(TEXT.encode() * 40).decode()
IMAGE = base64.b64encode(TEXT.encode() * 4_000).decode()
TOKENS = {"input_tokens": 17, "output_tokens": 9, "total_tokens": 26}


def events(*sent: dict[str, Any]) -> Script:
    pieces = [chunk(b"data: " + json.dumps(event).encode() + b"\n\n") for event in sent]
    return answer(head(kind="text/event-stream"), *pieces, LAST_CHUNK, pause_s=0.02)


def image(kind: str, **more: Any) -> dict[str, Any]:
    shown = {"size": "1024x1024", "quality": "high", "background": "opaque", "output_format": "png"}
    return {"type": f"image_generation.{kind}", "b64_json": IMAGE, "created_at": 1, **shown, **more}


SCRIPTS = {
    "/v1/audio/transcriptions": events(
        {"type": "transcript.text.delta", "delta": TEXT},
        {"type": "transcript.text.done", "text": TEXT, "usage": {"type": "tokens", **TOKENS}},
    ),
    "/v1/audio/speech": events(
        {"type": "speech.audio.delta", "audio": AUDIO}, {"type": "speech.audio.done", "usage": TOKENS}
    ),
    "/v1/images/generations": events(
        image("partial_image", partial_image_index=0),
        image("completed", usage={**TOKENS, "input_tokens_details": {"text_tokens": 17, "image_tokens": 0}}),
    ),
}


def transcribe(client: OpenAI) -> int:
    return len(list(client.audio.transcriptions.create(model="m-1", file=("a.wav", b"RIFF" * 64), stream=True)))


def speak(client: OpenAI, text: str = TEXT) -> int:
    request: dict[str, Any] = {"model": "m-2", "voice": "alloy", "input": text, "stream_format": "sse"}
    with client.audio.speech.with_streaming_response.create(**request) as response:
        return sum(line.startswith("data: ") for line in response.iter_lines())


def draw(client: OpenAI) -> int:
    return len(list(client.images.generate(model="m-3", prompt=TEXT, stream=True)))


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Running]:
    def play(exchange: Any) -> Any:
        return SCRIPTS[exchange.request.path](exchange)

    with Provider(play) as provider, start_up({"openai": provider.url}, tmp_path / "data") as running:
        yield running


def test_each_stream_has_its_record(up: Running) -> None:
    with make_client(f"{up.url}/openai") as client:
        assert (transcribe(client), speak(client), draw(client)) == (2, 2, 2)
        # A longer body than is kept: the record has no model.
        assert speak(client, "long " * 20_000) == 2
    found = {(record["dialect"], record["request_model"]): record for record in up.wait_for_records(4)}
    assert found.keys() == {
        ("openai-transcription", "m-1"),
        ("openai-speech", "m-2"),
        ("openai-images", "m-3"),
        ("openai-speech", None),
    }
    for record in found.values():
        assert (record["outcome"], record["streaming"], record["usage"]["source"]) == ("completed", True, "final")
        assert {name: record["usage"][name] for name in TOKENS} == TOKENS
        timing = record["timing"]
        assert 0 < timing["first_token_s"] <= timing["end_s"]
        assert record["integrity"]["complete"]
