"""The text that is compared to the letter with the clients' is the text that the record counts."""

from tests.differential.recording import kept, record_of
from tests.each import each
from tests.vectors.load import Vector, vectors

# State is bounded (core/assembly/event_sink.py): of these the record tells a part.
LIMITED = {"many-choices", "many-tools"}

# What a leg repeats is told to a sink and counts nothing. A whole answer is no stream.
COUNTED = [
    vector
    for vector in vectors()
    if vector.is_stream and vector.name not in LIMITED and not vector.record["counts"].get("repeated_events")
]


@each(COUNTED, lambda vector: f"{vector.dialect}/{vector.name}")
def test_the_record_counts_what_was_kept(vector: Vector) -> None:
    record, said = record_of(vector), kept(vector).said
    for name in ("text", "reasoning", "refusal"):
        assert sum(len(getattr(one, name)) for one in said.values()) == record["counts"][f"{name}_chars"]
    for choice in record["choices"]:
        calls = said[choice["index"]].calls if choice["index"] in said else []
        assert [len(str(call.arguments)) for call in calls] == [one["argument_chars"] for one in choice["tool_calls"]]
