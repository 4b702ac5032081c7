"""The command line's parser: argparse, with the rules that hold for every command of ours."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from streamgauge.runtime.redaction import redacted_text

# The second word of a command of two words, whose first word is a command as well.
PACKETS = "packets"

# The namespace's name of the parser that has parsed last. It is no option's, and leaves the namespace after parsing.
_PARSER = "_parser"

# argparse gives no public name to what add_subparsers returns.
Commands = Any


class Parser(argparse.ArgumentParser):
    """Keeps the lines of examples as they are, takes no option by its beginning (a later one might begin alike), and quotes
    no password in an error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})
        # The parser of the innermost command sets this last, so the namespace names the parser of the command that is given.
        self.set_defaults(**{_PARSER: self})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """A command of two words is listed as one: its words are put together.

        Unknown arguments end with the usage of the command that they were given to; argparse prints that of the first parser.
        """
        words = list(sys.argv[1:] if args is None else args)
        given = [" ".join(words[:2]), *words[2:]] if words[1:2] == [PACKETS] else words
        known, unknown = self.parse_known_args(given, namespace)
        parser: Parser = getattr(known, _PARSER)
        delattr(known, _PARSER)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(_names(unknown))}")
        return known

    def error(self, message: str) -> NoReturn:
        super().error(redacted_text(message))


def _names(words: Sequence[str]) -> Iterator[str]:
    """The words; of an option that does not exist its name alone, since its value may be a password."""
    after_option = False
    for word in words:
        is_option = word.startswith("-")
        name, has_value, _ = word.partition("=")
        if is_option:
            yield f"{name}=..." if has_value else name
        else:
            yield "..." if after_option else word
        after_option = is_option and not has_value
