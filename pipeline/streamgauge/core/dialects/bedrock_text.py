"""Text models of other vendors on Amazon Bedrock: Meta Llama, Amazon Titan, Mistral. One flat object an event.

They come by InvokeModelWithResponseStream. There is no terminal of their own: a stop reason ends the stream. Counts come in
each event or with the last one, and the last one has Bedrock's own metrics as well.

Sources: https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-meta.html, model-parameters-titan-text.html and
model-parameters-mistral-text-completion.html.
"""

from typing import NamedTuple

from streamgauge.core.allowlist import Kind, Spec
from streamgauge.core.dialects.contract import KEEP_ERRORS, Data, DialectDefaults, Sink
from streamgauge.core.usage import UsageRules


class _Vendor(NamedTuple):
    """The names of a vendor's members."""

    text: str
    reason: str


_FLAT = (_Vendor("generation", "stop_reason"), _Vendor("outputText", "completionReason"))
_MISTRAL = _Vendor("text", "stop_reason")  # in the objects of a list `outputs`

_KEEP_USAGE: dict[str, Spec] = {
    "prompt_token_count": Kind.COUNT,
    "generation_token_count": Kind.COUNT,
    "inputTextTokenCount": Kind.COUNT,
    "totalOutputTextTokenCount": Kind.COUNT,
    "tokenCount": Kind.COUNT,  # of Titan's whole answer
}
_KEEP_PIECE: dict[str, Spec] = {
    **{vendor.text: Kind.TEXT for vendor in (*_FLAT, _MISTRAL)},
    **{vendor.reason: Kind.REASON for vendor in (*_FLAT, _MISTRAL)},
    "tokenCount": Kind.COUNT,
}
KEEP: dict[str, Spec] = {
    **KEEP_ERRORS,
    **_KEEP_PIECE,
    **_KEEP_USAGE,
    "index": Kind.COUNT,
    "outputs": [_KEEP_PIECE],
    "results": [_KEEP_PIECE],
}


class BedrockText(DialectDefaults):
    """The flat events of text models on Bedrock."""

    name = "bedrock-text"
    endpoint = "/model/{id}/invoke-with-response-stream"
    keep = KEEP
    keep_body = KEEP
    finish_is_terminal = True
    usage = UsageRules(
        spec=_KEEP_USAGE,
        input=("prompt_token_count", "inputTextTokenCount"),
        output=("generation_token_count", "totalOutputTextTokenCount", "tokenCount"),
    )

    def recognises(self, event: str, data: Data) -> bool:
        """By a vendor's text beside its stop reason, which may be null."""
        return any(isinstance(data.get(vendor.text), str) and vendor.reason in data for vendor in _FLAT) or bool(
            _pieces(data, "outputs")
        )

    def recognises_body(self, data: Data) -> bool:
        """By Titan's results. Whole answers of the others have the members of an event."""
        return bool(_pieces(data, "results")) and "inputTextTokenCount" in data

    def read(self, event: str, data: Data, sink: Sink) -> None:
        """Reports the text, the stop reason and the counts."""
        for vendor in _FLAT:
            if isinstance(data.get(vendor.text), str):
                _read_piece(data, vendor, sink)
        for piece in _pieces(data, "outputs"):
            _read_piece(piece, _MISTRAL, sink)
        sink.usage({name: data[name] for name in _KEEP_USAGE if data.get(name) is not None} or None)

    def read_body(self, data: Data, sink: Sink) -> None:
        """Reports the results, and ends the stream."""
        self.read("", data, sink)
        for piece in _pieces(data, "results"):
            _read_piece(piece, _FLAT[1], sink)
            sink.usage({"tokenCount": piece.get("tokenCount")})
        sink.terminal()


def _pieces(data: Data, name: str) -> list[Data]:
    """The objects of a list that have a text and a stop reason, which may be null."""
    listed = data.get(name)
    vendor = _MISTRAL if name == "outputs" else _FLAT[1]
    return [
        piece
        for piece in (listed if isinstance(listed, list) else ())
        if isinstance(piece, dict) and isinstance(piece.get(vendor.text), str) and vendor.reason in piece
    ]


def _read_piece(piece: Data, vendor: _Vendor, sink: Sink) -> None:
    sink.choice(0)
    sink.text(0, piece.get(vendor.text))
    sink.finish(0, piece.get(vendor.reason))
