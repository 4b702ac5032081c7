"""Writes the pages of docs/reference (the commands, the record, the settings, the topics) from the code.

`python -m scripts.generate_reference [FOLDER]` writes them, by default into docs/reference/.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from scripts.acl_section import acl_section
from scripts.commands_page import commands_page
from scripts.settings_page import settings_page

from streamgauge import records
from streamgauge.core.assembly.assembler import Assembler
from streamgauge.core.capture.segments import (
    SLOTS,
    Bundle,
    Ending,
    Head,
    Opening,
    RateLimit,
    Read,
    RequestFacts,
    Segment,
    StreamEnding,
    TransportFault,
)
from streamgauge.core.dialects import DIALECTS
from streamgauge.core.record import encode_record
from streamgauge.kafka.administrator import Operation
from streamgauge.kafka.topic_settings import CONTENTS, Setting, settings_of
from streamgauge.kafka.topics import RIGHTS
from streamgauge.settings.declarations import DEFAULT_PARTITIONS, DEFAULT_REPLICAS

Field = Mapping[str, Any]

_MS = 1_000_000
_WALL_NS = 1_795_687_200_000_000_000
_INSTANCE = bytes.fromhex("019ac0f71c2a7d3e9b6f0a1b2c3d4e5f")
_STREAM = bytes.fromhex("019ac0fa44b57a918c5d6e7f80912233")


def files() -> Mapping[str, str]:
    """The generated files: name below docs/reference/ -> text."""
    settings = (*_head("Settings", "settings/declarations.py"), *settings_page())
    commands = (*_head("Commands and exit codes", "cli/commands/"), *commands_page())
    pages = {"commands.md": commands, "record.md": _record_page(), "settings.md": settings, "topics.md": _topics_page()}
    return {name: "\n".join(page) for name, page in pages.items()}


def write(folder: Path) -> None:
    """Write the generated files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def _head(title: str, source: str) -> list[str]:
    return [f"# {title}", "", f"Generated from `{source}` by `make generated`: do not edit.", ""]


def _prose(text: str) -> Iterator[str]:
    """A paragraph, and the blank line after it."""
    yield from textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
    yield ""


# --- the record -----------------------------------------------------------------------------------------------------


def _record_page() -> Iterator[str]:
    schema = json.loads(records.json_schema())
    rules = (records.__doc__ or "").split("\n\n")
    yield from _head("The record", "records.py")
    yield from _prose(
        "Each finished stream has one record: a JSON object, one line in the topic `streamgauge.records`, and one row of the"
        " ledger. `streamgauge ledger query --output jsonl` and `streamgauge replay FILE --output jsonl` print records; the"
        " ledger adds a field `cost`: null, or `usd` (a decimal string), `price_source`, `price_date`, `list_usd`, and"
        " `lacks` where something has no price ([usage](../guides/usage.md#cost)). The JSON Schema is"
        " [schemas/record.v1.json](../../schemas/record.v1.json). In Python, `Record.model_validate_json(line)` of"
        " `streamgauge.records` reads one."
    )
    yield from (line for rule in rules if rule.startswith("- ") for line in rule.splitlines())
    yield ""
    yield from _prose("The [glossary](../glossary.md) explains words such as stream, read, token event and terminal.")
    examples = [json.loads(encode_record(one)) for one in _examples()]
    for path, part in _parts(schema, schema, ""):
        yield from _part(schema, path, part, examples)
    yield from _dialects()
    yield "## An example"
    yield ""
    yield "```json"
    yield re.sub(r"\[\s+([^][{}]+?),\s+([^][{}]+?)\s+\]", r"[\1, \2]", json.dumps(examples[0], indent=2))
    yield "```"
    yield ""


def _parts(schema: Field, part: Field, path: str) -> Iterator[tuple[str, Field]]:
    """The parts of the record in the order of their fields, each with its path from the record."""
    yield path, part
    for name, field in part["properties"].items():
        target, is_list = _target(field)
        if target is not None:
            yield from _parts(schema, schema["$defs"][target], f"{path}.{name}".lstrip(".") + "[]" * is_list)


def _target(field: Field) -> tuple[str | None, bool]:
    """The part that a field holds, and whether it holds a list of them."""
    for one in (field, *field.get("anyOf", ())):
        inner = one.get("items", {})
        for place, is_list in ((one, False), (inner, True)):
            if "$ref" in place:
                return place["$ref"].rsplit("/", 1)[1], is_list
    return None, False


def _part(schema: Field, path: str, part: Field, examples: Sequence[Field]) -> Iterator[str]:
    yield f"## {_title(path)}"
    yield ""
    yield _lines(part["description"])
    yield ""
    yield "| field | type | unit | meaning | example |"
    yield "|---|---|---|---|---|"
    lists = []
    for name, field in part["properties"].items():
        meaning, *values = field["description"].split("\n- ")
        if values:
            lists += ["", f"**Values of `{name}`**", "", *(f"- {value}" for value in values)]
            meaning = f"{meaning.rstrip(':.')} (values below)."
        example = _example(examples, path, name)
        yield f"| `{name}` | {_type(field, path, name)} | {_unit(name)} | {_lines(meaning)} | {example} |"
    yield from lists
    yield ""


def _title(path: str) -> str:
    return f"`{path}`" if path else "Fields"


def _anchor(path: str) -> str:
    """The anchor of a part's heading, as GitHub makes it."""
    return "#" + re.sub(r"[^\w -]", "", path.lower()) if path else "#fields"


def _lines(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip())


def _type(field: Field, path: str, name: str) -> str:
    kinds = [_kind(one, f"{path}.{name}".lstrip(".")) for one in field.get("anyOf", [field])]
    return " or ".join(dict.fromkeys(kinds))


def _kind(one: Field, path: str) -> str:
    if "$ref" in one:
        return f"[object]({_anchor(path)})"
    if "items" in one:
        items = one["items"]
        inner = (
            f"[objects]({_anchor(path + '[]')})" if "$ref" in items else {"array": "pairs"}.get(items.get("type"), "")
        )
        return f"list of {inner or ('objects' if items.get('type') == 'object' else 'strings')}"
    return str(one.get("type", "number" if isinstance(one.get("const"), int) else "string"))


def _unit(name: str) -> str:
    for end, unit in (("_s", "s"), ("_tokens", "tokens"), ("_chars", "characters"), ("bytes", "bytes")):
        if name.endswith(end) and name != "max_tokens":
            return unit
    return {"max_tokens": "tokens", "buckets": "s, gaps"}.get(name, "")


def _example(examples: Sequence[Field], path: str, name: str) -> str:
    """The first value of the field in the examples that is not null, and not empty if there is such a one."""
    found: list[Any] = []
    for example in examples:
        values: list[Any] = [example]
        for step in path.split(".") if path else ():
            values = [inner for value in values if value for inner in _inner(value[step.removesuffix("[]")])]
        found += [value[name] for value in values if value]
    best = next((one for one in found if one not in (None, [])), next((one for one in found if one is not None), None))
    if isinstance(best, dict) or (isinstance(best, list) and best and isinstance(best[0], dict)):
        return ""
    if isinstance(best, list) and len(best) > 3:
        return f"`[{json.dumps(best[0])}, ..., {json.dumps(best[-1])}]`"
    return f"`{best if isinstance(best, str) else json.dumps(best)}`"


def _inner(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _dialects() -> Iterator[str]:
    yield "## Dialects and endpoints"
    yield ""
    yield from _prose(
        "The content of a response shows its dialect, whatever its path is. `endpoint` is the template of the path if the"
        " path belongs to the dialect, else the first one here. `other` is the dialect of events that are not an LLM's."
    )
    yield "| `dialect` | `endpoint` |"
    yield "|---|---|"
    for dialect in sorted(DIALECTS, key=lambda one: one.name):
        paths = dict.fromkeys((dialect.endpoint, *dialect.paths))
        yield f"| `{dialect.name}` | {', '.join(f'`{path}`' for path in paths)} |"
    yield ""


def _examples() -> Iterator[Any]:
    """Records that the assembler makes of four streams. The first shows a usual stream; the others have what it lacks."""
    for number, segment in enumerate((_chat(), _messages(), _limited(), _resumed())):
        stream = _STREAM[:-1] + bytes([number])
        bundle = Bundle(_INSTANCE, 0, 0, 0, [msgspec.structs.replace(segment, stream=stream)])
        yield from Assembler().apply(0, 0, bundle)


def _chat() -> Segment:
    """A chat stream with reasoning, text and usage, of a server that reports its own times."""
    texts = ["Each", " reading", " of", " the", " gauge", " is", " one", " row", "."]
    events: list[tuple[int, dict[str, Any]]] = [
        (412, {"delta": {"role": "assistant", "content": ""}}),
        (455, {"delta": {"reasoning": "Short answer."}}),
    ]
    events += [(498 + 21 * at, {"delta": {"content": text}}) for at, text in enumerate(texts)]
    events.append((701, {"delta": {}, "finish_reason": "stop"}))
    same: dict[str, Any] = {"id": "chatcmpl-7f3a", "model": "llama-3.3-70b-versatile", "service_tier": "on_demand"}
    reads = [_read(ms, same | {"choices": [{"index": 0, **choice}]}) for ms, choice in events]
    usage: dict[str, Any] = {
        "prompt_tokens": 41,
        "completion_tokens": 13,
        "total_tokens": 54,
        "queue_time": 0.021,
        "total_time": 0.268,
    }
    usage |= {"completion_tokens_details": {"reasoning_tokens": 3}, "prompt_tokens_details": {"cached_tokens": 32}}
    reads.append(_read(702, same | {"choices": [], "usage": usage}, done=True))
    request = RequestFacts(
        body_bytes=512, model="llama-3.3-70b-versatile", stream=True, n=1, max_tokens=256, include_usage=True,
        digest="5d1c0f0b9a7e4c6f8a3b2d1e0f9c8b7a", connect_ns=38 * _MS, sent_ns=39 * _MS,
    )  # fmt: skip
    limits = RateLimit(14_400, 14_370, 179_560 * _MS, 18_000, 17_655, 1_150 * _MS)
    names = {"provider_request_id": "req_01kb3vq2", "organization": "org-river", "project": "proj-gauge"}
    head = _head_of(200, **names, rate_limit=limits)
    return _segment("groq", "/chat/completions", request, head, reads, 704)


def _messages() -> Segment:
    """An Anthropic stream through a gateway that reports its cost. It calls a tool, and uses a cache."""
    usage = {
        "input_tokens": 20, "cache_creation_input_tokens": 2048, "cache_read_input_tokens": 512, "output_tokens": 1,
        "cache_creation": {"ephemeral_1h_input_tokens": 2048, "ephemeral_5m_input_tokens": 0},
    }  # fmt: skip
    used = {"output_tokens": 24, "cost": 0.01285, "is_byok": False}
    message = {"id": "msg_01", "model": "claude-x", "role": "assistant", "usage": usage}
    block = {"type": "tool_use", "id": "toolu_01", "name": "get_level", "input": {}}
    events: list[tuple[int, dict[str, Any]]] = [
        (520, {"type": "message_start", "message": message}),
        (610, {"type": "content_block_start", "index": 0, "content_block": block}),
        (640, _delta('{"station": ')),
        (662, _delta('"Basel"}')),
        (663, {"type": "content_block_stop", "index": 0}),
        (690, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": used}),
        (690, {"type": "message_stop"}),
    ]
    reads = [_read(ms, event, name=str(event["type"])) for ms, event in events]
    request = RequestFacts(body_bytes=2210, model="claude-x", stream=True, max_tokens=1024, sent_ns=2 * _MS)
    head = _head_of(200, content_encoding="gzip")
    segment = _segment("openrouter", "/messages", request, head, reads, 692)
    return msgspec.structs.replace(
        segment, opening=msgspec.structs.replace(_opening("openrouter", "/messages"), capture="full")
    )


def _delta(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}


def _limited() -> Segment:
    """A request that was rejected with 429."""
    body = b'{"error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"masked"}}'
    head = msgspec.structs.replace(_head_of(429), event_stream=False, retry_after_s=20.0)
    segment = _segment("openai", "/chat/completions", RequestFacts(body_bytes=80, model="m"), head, [], 61)
    end = StreamEnding(Ending.COMPLETE, stamp_ns=61 * _MS, client_bytes=len(body), body=body)
    return msgspec.structs.replace(segment, reads=[Read(60 * _MS, len(body), len(body))], end=end)


def _resumed() -> Segment:
    """A stored response that was continued after event 41, until its connection was reset."""
    event = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0}
    reads = [
        _read(90 + 15 * at, event | {"sequence_number": 40 + at, "delta": "level"}, name=str(event["type"]))
        for at in range(4)
    ]
    segment = _segment("openai", "/responses/{id}", RequestFacts(stream=True), _head_of(200), reads, 151)
    opening = _opening("openai", "/responses/{id}")
    opening = msgspec.structs.replace(opening, resumed_from="41", resumed_after=41, continues="resp_68")
    end = StreamEnding(
        Ending.RESET, stamp_ns=151 * _MS, client_gone_ns=None, client_bytes=640, fault=TransportFault.RESET
    )
    return msgspec.structs.replace(segment, opening=opening, end=end)


def _read(ms: int, event: Mapping[str, Any], name: str = "", *, done: bool = False) -> Read:
    content = (f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n" + "data: [DONE]\n\n" * done
    return Read(ms * _MS, len(content), len(content), content.encode())


def _head_of(status: int, **facts: Any) -> Head:
    return Head(status, stamp_ns=(410 if status == 200 else 60) * _MS, event_stream=True, **facts)


def _opening(upstream: str, path: str) -> Opening:
    return Opening(
        "proxy", "0.1.0", "masked", upstream=upstream, path=path, started_at_ns=_WALL_NS,
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736", parent_span_id="00f067aa0ba902b7", tenant="team-river",
        credential_id="9b1f4c2d7a8e3b5c6d0f1a2b3c4d5e6f", attempt=1, attributes=(("agent", "planner"),),
    )  # fmt: skip


def _segment(upstream: str, path: str, request: RequestFacts, head: Head, reads: list[Read], end_ms: int) -> Segment:
    size = sum(read.body_bytes for read in reads)
    end = StreamEnding(Ending.COMPLETE, stamp_ns=end_ms * _MS, client_blocked_ns=0, client_bytes=size)
    return Segment(_STREAM, 0, _opening(upstream, path), request, head, reads, end=end)


# --- the topics -----------------------------------------------------------------------------------------------------


def _topics_page() -> Iterator[str]:
    yield from _head("Topics", "kafka/topic_settings.py")
    yield from _prose(
        "`streamgauge topics create` makes these topics, or compares them if they exist. `streamgauge topics describe` shows"
        f" them. `--topic-prefix` sets another prefix. N is `--partitions`: {DEFAULT_PARTITIONS} by default, a power of two"
        f" up to {SLOTS}. Each partition has {DEFAULT_REPLICAS} replicas, or as many as there are brokers; `--replicas` sets"
        " another number. The commands set no `min.insync.replicas`: the brokers' default applies. Producers are idempotent"
        " and wait for all in-sync replicas."
    )
    yield "| topic | key | value | partitions | kept |"
    yield "|---|---|---|---|---|"
    for name, content in CONTENTS.items():
        kept = _kept(settings_of(name))
        count = content.partitions or "N"
        yield f"| [`streamgauge.{name}`](#streamgauge{name}) | {content.key} | {content.value} | {count} | {kept} |"
    yield ""
    for name, content in CONTENTS.items():
        yield f"## `streamgauge.{name}`"
        yield ""
        yield from _prose(content.about)
        yield f"Written by {_users(name, Operation.WRITE)}. Read by {_users(name, Operation.READ)}."
        yield ""
        yield "| setting | value | reason |"
        yield "|---|---|---|"
        yield from (f"| `{one.key}` | {_value(one)} | {one.reason} |" for one in settings_of(name))
        yield ""
    yield from _prose(
        "[Kafka with TLS, SASL and ACLs](../guides/kafka-security.md) lists the rights of each command, and"
        " [dead letters](../guides/deadletter.md) the headers of a dead letter."
    )
    yield from acl_section()


def _users(topic: str, operation: Operation) -> str:
    jobs = [
        job.value
        for job, rights in RIGHTS.items()
        if any(one == operation and name == topic for one, _, name in rights)
    ]
    return ", ".join(f"`{job}`" for job in jobs)


def _kept(settings: Iterable[Setting]) -> str:
    values = {setting.key: setting.value for setting in settings}
    return _days(values["retention.ms"]) if "retention.ms" in values else "the newest entry of each key"


def _days(milliseconds: str) -> str:
    return f"{int(milliseconds) // 86_400_000} days"


def _value(setting: Setting) -> str:
    match setting.key:
        case "retention.ms":
            return f"{setting.value} ({_days(setting.value)})"
        case "segment.ms" | "min.compaction.lag.ms":
            return f"{setting.value} ({int(setting.value) // 60_000} minutes)"
        case "max.message.bytes" | "segment.bytes":
            return f"{setting.value} ({int(setting.value) / 1024**2:.4g} MiB)"
        case _:
            return f"`{setting.value}`"


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/reference"))
