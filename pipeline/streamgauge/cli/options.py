"""An option that is not a setting, and the forms in which commands print rows."""

from collections.abc import Callable
from dataclasses import dataclass
from keyword import iskeyword

# How a command prints rows. json: one JSON document; jsonl: one JSON document a line.
TABLE, CSV, TEXT, JSON, JSONL, HTML = "table", "csv", "text", "json", "jsonl", "html"


@dataclass(frozen=True)
class Option:
    """An option that is not a setting, or an argument (its name does not begin with a dash).

    `kind`: str, int, float, or bool for a switch; `choices`: the allowed words, or a function that gives them, for those
    whose modules take time to import; `repeatable`: the value is a list.
    """

    name: str
    about: str
    metavar: str = ""
    kind: type = str
    default: object = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    repeatable: bool = False
    required: bool = False
    hidden: bool = False

    @property
    def key(self) -> str:
        """Its name in the parsed arguments; a word of Python (--from) gets an underscore after it."""
        name = self.name.lstrip("-").replace("-", "_")
        return f"{name}_" if iskeyword(name) else name

    @property
    def is_argument(self) -> bool:
        """Whether it is given by its position."""
        return not self.name.startswith("-")

    def words(self) -> tuple[str, ...]:
        """Every allowed word; empty if any is allowed."""
        return self.choices() if callable(self.choices) else self.choices


def output(*choices: str) -> Option:
    """The option that selects the form of the output; its first choice is the default."""
    return Option("--output", "form of the output", "FORM", default=choices[0], choices=choices)
