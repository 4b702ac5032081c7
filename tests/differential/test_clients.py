"""The official clients read every vector of their dialect from a real server, and must read the same as the core.

`disagreements.py` lists the exceptions, each with the fact that justifies the core's reading.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest

from tests.differential.core_reading import ours
from tests.differential.disagreements import DISAGREEMENTS, REFUSALS, Disagreement
from tests.differential.reading import Difference, Oracle, Reading, differences, read_with
from tests.differential.serving import VectorServer, served
from tests.each import check_each
from tests.vectors.load import Vector, vectors

# The module and the class of each client, by its name. Only the process that runs these tests imports the libraries, which
# takes seconds; all test processes collect this file.
ORACLES: dict[str, tuple[str, str]] = {
    "openai chat.completions.stream": ("openai_chat", "Accumulated"),
    "openai chat.completions.create": ("openai_chat", "Chunks"),
    "openai completions.create": ("openai_completions", "Chunks"),
    "openai responses.stream": ("openai_responses", "Accumulated"),
    "openai responses.create": ("openai_responses", "Events"),
    "openai audio.transcriptions.create": ("openai_media", "Transcription"),
    "openai audio.speech.with_streaming_response.create": ("openai_media", "Speech"),
    "openai images.generate": ("openai_media", "Images"),
    "anthropic messages.stream": ("anthropic_messages", "Accumulated"),
    "google-genai generate_content_stream": ("gemini", "Chunks"),
    "google-genai interactions.create": ("gemini_interactions", "Events"),
    "cohere chat_stream": ("cohere_v2", "Events"),
    "mistralai chat.stream": ("mistral_chat", "Chunks"),
    "ollama chat": ("ollama", "Lines"),
}

# The share of completed streams that a client must read to the end. Three clients are strict about the members of events.
MIN_SHARE_READ = {"openai responses.stream": 0.4, "mistralai chat.stream": 0.6, "ollama chat": 0.8}
MIN_SHARE_READ_BY_OTHERS = 0.85

# What a streaming client receives: event streams, and responses with an error status.
VECTORS = [vector for vector in vectors() if vector.is_stream or vector.status >= 300]

# Warnings of clients about values of other types than they expect; they continue to read.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning"),
]


@cache
def oracle_named(name: str) -> Oracle:
    module, class_name = ORACLES[name]
    made: Oracle = getattr(import_module(f"tests.differential.{module}"), class_name)()
    assert made.name == name
    return made


def name_of(vector: Vector) -> str:
    return f"{vector.dialect}/{vector.name}"


def vectors_of(oracle: Oracle) -> list[Vector]:
    return [vector for vector in VECTORS if vector.dialect == oracle.dialect]


def refusals_of(oracle: Oracle) -> list[str]:
    """The beginnings of the exceptions that this client may raise."""
    return [refusal.raised for refusal in REFUSALS if oracle.name in refusal.clients]


class Readings:
    """The readings of each vector by each client and by the core, each made once."""

    def __init__(self, server: VectorServer) -> None:
        self._server = server
        self._theirs: dict[tuple[str, str], Reading] = {}
        self._ours: dict[str, Reading] = {}

    def theirs(self, oracle: Oracle, vector: Vector) -> Reading:
        key = oracle.name, vector.name
        if key not in self._theirs:
            self._theirs[key] = read_with(oracle, self._server.url_of(vector))
        return self._theirs[key]

    def ours(self, vector: Vector) -> Reading:
        if name_of(vector) not in self._ours:
            self._ours[name_of(vector)] = ours(vector)
        return self._ours[name_of(vector)]

    def differences(self, oracle: Oracle, vector: Vector) -> list[Difference]:
        return differences(self.ours(vector), self.theirs(oracle, vector), oracle.unsupported)


@pytest.fixture(scope="module")
def readings() -> Iterator[Readings]:
    with served(VECTORS) as server:
        yield Readings(server)


@pytest.fixture
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return oracle_named(request.param)


each_client = pytest.mark.parametrize("oracle", ORACLES, indirect=True)


@each_client
def test_a_client_and_the_core_read_the_same(readings: Readings, oracle: Oracle) -> None:
    def check(vector: Vector) -> None:
        found, reading = readings.differences(oracle, vector), readings.theirs(oracle, vector)
        assert reading.ended != "unreadable" or any(map(reading.raised.startswith, refusals_of(oracle))), reading.raised
        known = DISAGREEMENTS.get((oracle.name, vector.name), Disagreement(frozenset(), "they must not differ"))
        assert {field for field, _, _ in found} == known.fields, (found, known.fact)

    check_each(vectors_of(oracle), check, name_of)


def test_every_disagreement_names_a_client_and_one_of_its_vectors() -> None:
    assert set(DISAGREEMENTS) <= {(name, vector.name) for name in ORACLES for vector in vectors_of(oracle_named(name))}


@each_client
def test_every_refusal_still_happens(readings: Readings, oracle: Oracle) -> None:
    raised = [readings.theirs(oracle, vector).raised for vector in vectors_of(oracle)]
    assert [start for start in refusals_of(oracle) if not any(error.startswith(start) for error in raised)] == []


@each_client
def test_a_client_reads_most_completed_streams_to_the_end(readings: Readings, oracle: Oracle) -> None:
    completed = [vector for vector in vectors_of(oracle) if vector.record["outcome"] == "completed"]
    whole = [vector for vector in completed if readings.theirs(oracle, vector).ended == "whole"]
    assert completed
    assert len(whole) >= MIN_SHARE_READ.get(oracle.name, MIN_SHARE_READ_BY_OTHERS) * len(completed)


def test_mistrals_client_and_the_core_read_the_same_reasoning(readings: Readings) -> None:
    [vector] = [vector for vector in VECTORS if name_of(vector) == "openai-chat/mistral-list-content"]
    theirs = readings.theirs(oracle_named("mistralai chat.stream"), vector)
    assert theirs.choice(0).reasoning
    assert differences(readings.ours(vector), theirs) == []
