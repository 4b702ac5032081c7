"""The record counts the texts that the sink keeps, which are compared with those of the clients."""

from tests.differential.core_reading import outputs_of, record_of
from tests.each import each
from tests.vectors.load import Vector, vectors

# The record holds only a part of these, because state is bounded (core/assembly/event_sink.py).
LIMITED = {"many-choices", "many-tools"}

# Without resumed streams that repeat events: a dialect reports these to the sink, and the record does not count them.
COUNTED = [
    vector
    for vector in vectors()
    if vector.is_stream and vector.name not in LIMITED and not vector.record["counts"].get("repeated_events")
]


@each(COUNTED, lambda vector: f"{vector.dialect}/{vector.name}")
def test_the_record_counts_the_characters_of_the_kept_texts(vector: Vector) -> None:
    record, outputs = record_of(vector), outputs_of(vector)
    for name in ("text", "reasoning", "refusal"):
        assert sum(len(getattr(output, name)) for output in outputs.values()) == record["counts"][f"{name}_chars"]
    for choice in record["choices"]:
        calls = outputs[choice["index"]].calls if choice["index"] in outputs else []
        assert [len(str(call.arguments)) for call in calls] == [call["argument_chars"] for call in choice["tool_calls"]]
