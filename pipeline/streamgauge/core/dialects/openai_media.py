"""OpenAI's streams of transcription, speech and images: typed events, of which the last has the usage and ends the stream.

`/audio/transcriptions` sends `transcript.text.delta`, where it tells speakers apart also a `transcript.text.segment` for each
turn, and `transcript.text.done`, which repeats the text. `/audio/speech` with `stream_format=sse` sends `speech.audio.delta`
and `speech.audio.done`. `/images/generations` and `/images/edits` send `image_generation` (or `image_edit`) `.partial_image`
and `.completed`, which has the image itself. No event names a model, and none has a finish reason.

Sources: https://github.com/openai/openai-python: types/audio/transcription_stream_event.py, types/image_gen_stream_event.py,
types/image_edit_stream_event.py; https://platform.openai.com/docs/api-reference/audio/speech-audio-delta-event.
"""

from collections.abc import Mapping

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink, Source, type_of
from streamgauge.core.formats.cut_json import first_members, last_members
from streamgauge.core.usage import UsageRules

_KEEP_DETAILS: Spec = dict.fromkeys(("text_tokens", "image_tokens", "audio_tokens"), Kind.COUNT)
_KEEP_USAGE: dict[str, Spec] = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), Kind.COUNT),
    "input_tokens_details": _KEEP_DETAILS,  # images
    "output_tokens_details": _KEEP_DETAILS,
    "input_token_details": _KEEP_DETAILS,  # transcription
    "type": Kind.CODE,
    "seconds": Kind.NUMBER,  # of models that are billed by the duration of the audio
}
_KEEP_TRANSCRIPTION: dict[str, Spec] = {**KEEP_ERRORS, "delta": Kind.TEXT, "text": Kind.TEXT, "usage": _KEEP_USAGE}
_KEEP_SPEECH: dict[str, Spec] = {**KEEP_ERRORS, "audio": Kind.TEXT, "usage": _KEEP_USAGE}
_KEEP_IMAGES: dict[str, Spec] = {**KEEP_ERRORS, "b64_json": Kind.TEXT, "usage": _KEEP_USAGE}
_USAGE = UsageRules(
    spec=_KEEP_USAGE,
    input=("input_tokens",),
    output=("output_tokens",),
    total=("total_tokens",),
    audio_input=("input_token_details.audio_tokens",),
)


class _Media(DialectDefaults):
    """What the three have in common. `begins`: how the types of their events begin; `ends`: the types that end a stream."""

    name = ""
    endpoint = ""
    begins: tuple[str, ...] = ()
    ends: frozenset[str] = frozenset()
    keep: Mapping[str, Spec] = KEEP_ERRORS
    keep_body: Mapping[str, Spec] = KEEP_ERRORS
    usage = _USAGE

    def recognises(self, event: str, data: Data) -> bool:
        """By the beginning of the event's type."""
        kind = type_of(event, data)
        return isinstance(kind, str) and kind.startswith(self.begins)

    def recognises_body(self, data: Data) -> bool:
        """Never: only streams are read."""
        return False

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the output; of the last event the usage, too, and the end."""
        kind = type_of(event, data)
        if not isinstance(kind, str) or not kind.startswith(self.begins):
            return
        sink.choice(0)
        self._read_output(kind, data, sink)
        if kind in self.ends:
            sink.terminal()
            sink.usage(data.get("usage"))

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the usage of an answer that is no stream, and ends it."""
        sink.terminal()
        sink.usage(data.get("usage"))

    def outline_of(self, event: str, head: bytes, tail: bytes) -> Data | None:
        """The type, which is before the long member or after it; of the last event the usage, too."""
        last = last_members(tail, b"{", "type") or last_members(tail, b"{", "usage")
        members = {**first_members(head), **last}
        kind = type_of(event, members)
        if not isinstance(kind, str) or not kind.startswith(self.begins):
            return None
        return {"type": kind, "usage": members.get("usage")} if kind in self.ends else {}

    def _read_output(self, kind: str, data: Data, sink: Sink) -> None:
        """Reports the output of an event of this type."""
        raise NotImplementedError


class OpenAITranscription(_Media):
    """OpenAI's /audio/transcriptions."""

    name = "openai-transcription"
    endpoint = "/audio/transcriptions"
    begins = ("transcript.text.",)
    ends = frozenset(("transcript.text.done",))
    keep = _KEEP_TRANSCRIPTION
    keep_body = _KEEP_TRANSCRIPTION

    def _read_output(self, kind: str, data: Data, sink: Sink) -> None:
        if kind == "transcript.text.delta":
            sink.part(None, Source.DELTA)
            sink.text(0, data.get("delta"))
        elif kind == "transcript.text.segment":
            sink.part(None, Source.PART_DONE)
            sink.text(0, data.get("text"))
        elif kind in self.ends:
            sink.closes()
            sink.text(0, data.get("text"))


class OpenAISpeech(_Media):
    """OpenAI's /audio/speech with `stream_format=sse`."""

    name = "openai-speech"
    endpoint = "/audio/speech"
    begins = ("speech.audio.",)
    ends = frozenset(("speech.audio.done",))
    keep = _KEEP_SPEECH
    keep_body = _KEEP_SPEECH

    def _read_output(self, kind: str, data: Data, sink: Sink) -> None:
        sink.media(0, data.get("audio"))


class OpenAIImages(_Media):
    """OpenAI's /images/generations and /images/edits. Each partial image is output, and so is the last one."""

    name = "openai-images"
    endpoint = "/images/generations"
    begins = ("image_generation.", "image_edit.")
    ends = frozenset(("image_generation.completed", "image_edit.completed"))
    keep = _KEEP_IMAGES
    keep_body = _KEEP_IMAGES

    def _read_output(self, kind: str, data: Data, sink: Sink) -> None:
        sink.media(0, data.get("b64_json"))
