"""A finding of a check: what was seen, and what cures it."""

from dataclasses import dataclass
from enum import StrEnum

from streamgauge.runtime.redaction import redacted_text


class Level(StrEnum):
    """How bad a finding is. Only a failure stops the installation from working."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """`says`: what was seen; `cure`: what to do about it, empty if nothing is to be done."""

    level: Level
    says: str
    cure: str = ""


def ok(says: str) -> Finding:
    """A finding that needs no cure."""
    return Finding(Level.OK, says)


def warn(says: str, cure: str) -> Finding:
    """The installation works, but not as well as it could, or not for long."""
    return Finding(Level.WARN, says, cure)


def fail(says: str, cure: str) -> Finding:
    """The installation does not work."""
    return Finding(Level.FAIL, says, cure)


def failure_of(error: Exception) -> Finding:
    """The failure for one of our errors, whose sentence ends with the cure after a colon."""
    says, colon, cure = str(error).rpartition(": ")
    return fail(redacted_text(says if colon else cure), redacted_text(cure) if colon else "")
