"""The parser class of the command line: argparse with rules for all commands."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from streamgauge.runtime.redaction import redacted_text

# The second word of a two-word command (`up packets`); its first word alone is a command, too.
PACKETS = "packets"

# The name under which the namespace holds the parser that parsed last. It is not an option and is removed after
# parsing.
_PARSER = "_parser"

# argparse gives no public name to what add_subparsers returns.
Commands = Any


class Parser(argparse.ArgumentParser):
    """Keeps the line breaks of examples, accepts no abbreviated options (a later option might begin alike), and quotes no
    password in errors.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})
        # The parser of the innermost command sets this last, so the namespace holds the parser of the command in use.
        self.set_defaults(**{_PARSER: self})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Joins the words of a two-word command, which is registered as one.

        An error about unknown arguments shows the usage of the command in use; argparse shows that of the top-level parser.
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
    """The words for an error message. For an unknown option only its name, since its value may be a password."""
    after_option = False
    for word in words:
        is_option = word.startswith("-")
        name, has_value, _ = word.partition("=")
        if is_option:
            yield f"{name}=..." if has_value else name
        else:
            yield "..." if after_option else word
        after_option = is_option and not has_value
