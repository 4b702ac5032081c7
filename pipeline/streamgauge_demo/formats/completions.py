"""Text completions: the text is in the choice itself, and a stream may end with [DONE] alone."""

from collections.abc import Iterable, Mapping

from streamgauge_demo.frames import Frame, block, compact


def text_chunks(response_id: str, pieces: Iterable[str], *, logprobs: bool = False) -> list[Frame]:
    """One chunk for each piece; with `logprobs` each also has its token's probability and offset."""
    frames, offset = [], 0
    for piece in pieces:
        choice: dict[str, object] = {"text": piece, "index": 0}
        if logprobs:
            choice["logprobs"] = _logprobs(piece, offset)
        frames.append(Frame(block(compact({**_head(response_id), "choices": [choice]})), token=True, text=piece))
        offset += len(piece)
    return frames


def whole_text(response_id: str, text: str, finish: str, usage: Mapping[str, object]) -> dict[str, object]:
    """The response to a request without `stream`."""
    choice = {"text": text, "index": 0, "finish_reason": finish, "logprobs": None}
    return {**_head(response_id), "choices": [choice], "usage": usage}


def _head(response_id: str) -> dict[str, object]:
    return {"id": response_id, "object": "text_completion"}


def _logprobs(piece: str, offset: int) -> dict[str, object]:
    return {"tokens": [piece], "token_logprobs": [-0.25], "top_logprobs": [{piece: -0.25}], "text_offset": [offset]}
