"""Regular expressions match the same on every CPython that Streamgauge supports.

Before 3.11.5, CPython matches wrongly if the body of a possessive or atomic group fails after it has consumed a
character: that character stays consumed (python/cpython#106052, python/cpython#100061). A possessive character class is
matched in one step and is not affected. So each such construct is in a list here, with the reason why it is right.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("pipeline", "tests", "bench", "scripts")

# File and constant -> why its group cannot fail after it has consumed a character.
AUDITED: dict[tuple[str, str], str] = {}
# Constants that are not regular expressions.
NO_PATTERNS = {("pipeline/streamgauge/taps/asgi.py", "/:@!$&'()*+,;=~")}
# Modules whose expressions another engine matches: that of a tokenizer, which is written in Rust.
OTHER_ENGINES = {"pipeline/streamgauge/recount/vocabularies.py"}

_ANY = re.compile(r"[*+?}]\+|\(\?>")  # a module without one of these has none
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\(\?>|[*+?}]\+|.", re.DOTALL)


def constructs(pattern: str) -> list[str]:
    """The possessive repetitions and atomic groups of a pattern, or of a part of one, each with what it repeats."""
    found, before = [], ""
    for token in _TOKEN.findall(pattern):
        if token == "(?>" or (len(token) == 2 and token[0] in "*+?}" and token[1] == "+"):
            found.append(token if token[0] in "(}" else before + token)
        before = token
    return found


def is_of_a_class(construct: str) -> bool:
    """Whether what is repeated is one character class, escape or character."""
    repeated = construct[:-2]
    return construct.endswith("+") and construct[-2:-1] in "*+?" and repeated not in ("", ")")


def constants(path: Path) -> Iterator[str]:
    """The strings and bytes of a module that are not its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            if isinstance(node.value, bytes):
                yield node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.value


def suspects(path: Path) -> list[tuple[str, str, str]]:
    """The constructs of a module that are not of a character class: its name, the constant, the construct."""
    if not _ANY.search(path.read_text(encoding="utf-8")):
        return []
    name = path.relative_to(ROOT).as_posix()
    return [
        (name, constant, construct)
        for constant in constants(path)
        for construct in constructs(constant)
        if not is_of_a_class(construct)
    ]


def test_no_possessive_or_atomic_group_is_new() -> None:
    modules = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [suspect for path in modules if path != Path(__file__) for suspect in suspects(path)]
    found = [suspect for suspect in found if suspect[0] not in OTHER_ENGINES]
    assert [suspect for suspect in found if suspect[:2] not in AUDITED and suspect[:2] not in NO_PATTERNS] == []


def test_modules_for_other_engines_compile_no_pattern() -> None:
    assert [name for name in sorted(OTHER_ENGINES) if "import re\n" in (ROOT / name).read_text()] == []


def test_audited_patterns_still_exist() -> None:
    for name, constant in (*AUDITED, *NO_PATTERNS):
        assert constant in constants(ROOT / name)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"(?:ab?c)*+", [")*+"]),
        (r"(?>a|ab)c", ["(?>"]),
        (r"(?:x){2,3}+", ["}+"]),
        (r"[^\]*+]+x*+", ["x*+"]),
        (r"[]+*]++", ["[]+*]++"]),
        (r"\(\*+\++(a)?+", [")?+"]),
        (r"[*+]+", []),
    ],
)
def test_constructs_are_found(pattern: str, found: list[str]) -> None:
    assert constructs(pattern) == found
