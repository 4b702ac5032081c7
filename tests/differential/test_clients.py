"""The official clients read every vector of their dialect from a real server: they and the core must say the same.

Where they do not, `disagrees.py` names the fact that decides. It excuses the core from nothing that it reads wrongly.
"""

from collections.abc import Iterator

import pytest

from tests.differential import (
    anthropic_messages,
    cohere_v2,
    gemini,
    gemini_interactions,
    mistral_chat,
    openai_chat,
    openai_completions,
    openai_responses,
)
from tests.differential.answer import Answer, Difference, Oracle, differences
from tests.differential.disagrees import DISAGREES, REFUSES, Disagreement
from tests.differential.recording import ours
from tests.differential.serving import VectorServer, served
from tests.each import check_each
from tests.vectors.load import Vector, vectors

ORACLES: tuple[Oracle, ...] = (
    openai_chat.Accumulated(),
    openai_chat.Chunks(),
    openai_completions.Chunks(),
    openai_responses.Accumulated(),
    openai_responses.Events(),
    anthropic_messages.Accumulated(),
    gemini.Chunks(),
    gemini_interactions.Events(),
    cohere_v2.Events(),
    mistral_chat.Chunks(),
)

# The share of a dialect's streams that a client must read to their end; two are strict about what belongs to a response.
READ = {"openai responses.stream": 0.4, "mistralai chat.stream": 0.6}
READ_ELSE = 0.85

# A client that streams sees event streams, and what is answered with an error status.
VECTORS = [vector for vector in vectors() if vector.is_stream or vector.status >= 300]
PAIRS = [(oracle, vector) for oracle in ORACLES for vector in VECTORS if vector.dialect in oracle.dialects]

# What clients warn of while they go on: values that are not of their types.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning"),
]


def name_of(vector: Vector) -> str:
    return f"{vector.dialect}/{vector.name}"


class Readings:
    """What each client reads of each vector, asked for once."""

    def __init__(self, server: VectorServer) -> None:
        self._server = server
        self._theirs: dict[tuple[str, str], Answer] = {}
        self._ours: dict[str, Answer] = {}

    def theirs(self, oracle: Oracle, vector: Vector) -> Answer:
        key = oracle.name, name_of(vector)
        if key not in self._theirs:
            self._theirs[key] = oracle.read(self._server.url(vector), vector)
        return self._theirs[key]

    def ours(self, vector: Vector) -> Answer:
        if name_of(vector) not in self._ours:
            self._ours[name_of(vector)] = ours(vector)
        return self._ours[name_of(vector)]

    def differences(self, oracle: Oracle, vector: Vector) -> list[Difference]:
        return differences(self.ours(vector), self.theirs(oracle, vector), oracle.blind)


@pytest.fixture(scope="module")
def readings() -> Iterator[Readings]:
    with served(VECTORS) as server:
        yield Readings(server)


each_client = pytest.mark.parametrize("oracle", ORACLES, ids=[oracle.name for oracle in ORACLES])


@each_client
def test_a_client_and_the_core_say_the_same(readings: Readings, oracle: Oracle) -> None:
    def says_the_same(vector: Vector) -> None:
        found, answer = readings.differences(oracle, vector), readings.theirs(oracle, vector)
        refused = [one for one in REFUSES if oracle.name in one.clients and answer.why.startswith(one.raised)]
        assert answer.ended != "unreadable" or refused, answer.why
        known = DISAGREES.get((oracle.name, name_of(vector)), Disagreement(frozenset(), ""))
        assert {field for field, _, _ in found} == known.fields, found

    check_each([vector for one, vector in PAIRS if one is oracle], says_the_same, name_of)


def test_every_disagreement_is_of_a_client_and_a_vector_that_there_are() -> None:
    assert set(DISAGREES) <= {(oracle.name, name_of(vector)) for oracle, vector in PAIRS}


@each_client
def test_every_refusal_still_happens(readings: Readings, oracle: Oracle) -> None:
    raised = [readings.theirs(one, vector).why for one, vector in PAIRS if one is oracle]
    known = [one.raised for one in REFUSES if oracle.name in one.clients]
    assert [start for start in known if not any(why.startswith(start) for why in raised)] == []


@each_client
def test_a_client_reads_most(readings: Readings, oracle: Oracle) -> None:
    completed = [vector for one, vector in PAIRS if one is oracle and vector.record["outcome"] == "completed"]
    whole = [vector for vector in completed if readings.theirs(oracle, vector).ended == "whole"]
    assert completed
    assert len(whole) >= READ.get(oracle.name, READ_ELSE) * len(completed)


def test_mistrals_own_reasoning_is_ours(readings: Readings) -> None:
    [vector] = [vector for vector in VECTORS if name_of(vector) == "openai-chat/mistral-list-content"]
    theirs = readings.theirs(mistral_chat.Chunks(), vector)
    assert theirs.choice(0).reasoning
    assert differences(readings.ours(vector), theirs) == []
