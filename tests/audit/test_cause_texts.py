"""The texts of causes: each cause of the contract has its own name, a meaning and an action, as whole sentences."""

from streamgauge.audit.cause_texts import CAUSE_TEXTS, name_of
from streamgauge.audit.result import CAUSES


def test_each_cause_has_a_name_of_its_own_and_whole_sentences() -> None:
    assert tuple(CAUSE_TEXTS) == CAUSES
    assert len({text.name for text in CAUSE_TEXTS.values()}) == len(CAUSES)
    for text in CAUSE_TEXTS.values():
        assert text.meaning.endswith(".")
        assert text.action.endswith(".")
        assert "_" not in text.name
        assert not {text.meaning, text.action} & {""}
    assert name_of("aborted_without_usage") == "Aborted streams"
