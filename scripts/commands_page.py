"""Makes docs/reference/commands.md from the table of commands: usage, exit codes, options, examples.

An option that several commands share is described once; each command that has it links there.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

import click
from scripts.settings_page import escaped

from streamgauge.cli.commands import COMMANDS
from streamgauge.cli.parser import CONFIG, Argument, Command, Names
from streamgauge.errors import BUG, DONE, FOUND, INTERRUPTED, STUCK, UNAVAILABLE, USAGE

_EXIT_CODES = {
    DONE: "done",
    FOUND: "the command ran and found a problem: see below, by command",
    USAGE: "wrong usage or settings",
    UNAVAILABLE: "a required service is unavailable (port, broker, database, file)",
    BUG: "an internal error: please report it",
    STUCK: "a worker was stuck and ended itself: restart it",
    INTERRUPTED: "ended by Ctrl-C before it was done",
}
# When a command that ran exits with FOUND. The others never do.
_FOUND = {
    "up packets": "a capture file (`--pcap`) is damaged",
    "tap packets": "a capture file (`--pcap`) is damaged",
    "replay": "a file is damaged; all others were replayed",
    "recount": "a file is damaged, or a vocabulary is missing; all other streams were counted",
    "demo": "a result was not as expected",
    "ledger import": "a line is no record, or the ledger has another record of that stream; all others were stored",
    "ledger show": "there is no such record, or more than one",
    "ledger budgets": "a budget is spent",
    "audit": "the difference has a cause, or is above the tolerance",
    "audit show": "with `--verify`: the run, made again, has other bytes",
    "audit diff": "the runs differ",
    "audit claim": "the ledger no longer has all of the streams",
    "topics create": "an existing topic differs",
    "topics describe": "there is no topic with this prefix",
    "deadletter retry": "some messages were not sent back",
    **dict.fromkeys(("doctor", "doctor up", "doctor tap", "doctor worker"), "a check failed; a warning is no failure"),
}


_CONTEXT = click.Context(click.Command("streamgauge"))
_OPTION_HEAD = ("| option | default | meaning |", "|---|---|---|")


def commands_page() -> Iterator[str]:
    """The lines of the page, after its head."""
    yield from (
        "`streamgauge COMMAND --help` prints the same with the settings. Results go to stdout, messages to stderr.",
        "[Settings](settings.md) has the options that are settings, each with its variable and its key in a settings file.",
        "",
        "| command | what it does |",
        "|---|---|",
    )
    groups = [list(commands) for _, commands in groupby(COMMANDS.values(), lambda command: command.examples)]
    for commands in groups:
        yield from (f"| [`{command.path}`](#{_anchor(commands)}) | {command.about} |" for command in commands)
    yield from ("", "## Exit codes", "", "| code | meaning |", "|---|---|")
    yield from (f"| {code} | {meaning} |" for code, meaning in _EXIT_CODES.items())
    yield from (
        "",
        "128 + a signal's number (130, 143): a second SIGTERM or Ctrl-C ended the command at once.",
        "",
        "| command | exits with 1 if |",
        "|---|---|",
    )
    yield from (f"| `{path}` | {meaning} |" for path, meaning in _FOUND.items())
    yield from ("", "`config check` exits with 2 if a file has a fault, as the command does that is started with it.")
    shared = _shared()
    yield from (
        "",
        "## Shared options",
        "",
        "Several commands have these options, which are no settings. The commands name them; the forms of `--output` differ,",
        "and the first one that a command names is its default.",
        "",
        *_OPTION_HEAD,
    )
    yield from (_option_row(option, is_shared=True) for option in shared.values())
    for commands in groups:
        yield from _section(commands, shared)
    yield ""


def _key(option: click.Parameter) -> tuple[str, str]:
    return option.opts[0], getattr(option, "help", "") or ""


def _visible(command: Command) -> list[click.Parameter]:
    return [option for option in (*command.options, CONFIG) if not getattr(option, "hidden", False)]


def _shared() -> dict[tuple[str, str], click.Parameter]:
    """The options, and arguments, that are equal in several commands, but for their forms."""
    of_all = [option for command in COMMANDS.values() for option in _visible(command)]
    counts = Counter(map(_key, of_all))
    return {_key(option): option for option in of_all if counts[_key(option)] > 1}


def _section(commands: list[Command], shared: dict[tuple[str, str], click.Parameter]) -> Iterator[str]:
    yield from ("", f"## {_title(commands)}")
    for command in commands:
        arguments = [option.make_metavar(_CONTEXT) for option in command.options if isinstance(option, Argument)]
        written = " ".join((command.path, "[OPTIONS]", *arguments))
        yield from ("", f"{command.about[0].upper()}{command.about[1:]}.", "", f"Usage: `{written}`", "")
        own = [option for option in _visible(command) if _key(option) not in shared]
        if own:
            yield from (*_OPTION_HEAD, *(_option_row(option) for option in own), "")
        named = [_named(option) for option in _visible(command) if _key(option) in shared]
        yield f"[Shared options](#shared-options): {', '.join(named)}."
        yield _settings(command)
    examples, *notes = commands[0].examples.strip().split("\n\n")
    shown = [line.removeprefix("  ").replace("    ", "# ", 1) for line in examples.splitlines()[1:]]
    yield from (
        "",
        "<!-- not run: each line is parsed by a test, and the guides run the commands -->",
        "```sh",
        *shown,
        "```",
    )
    for note in notes:
        lines = note.splitlines()
        yield ""
        yield from lines if not any(line.startswith(" ") for line in lines) else ("```text", *lines, "```")


def _settings(command: Command) -> str:
    """Where the settings of a command are described."""
    if command.takes:
        return "The options of the commands that are named on the command line are its options, too."
    sections = dict.fromkeys(setting.section for setting in command.settings)
    if not sections:
        return "It has no settings."
    return f"Settings: {', '.join(f'[{section}](settings.md#{section.lower()})' for section in sections)}."


def _title(commands: list[Command]) -> str:
    return ", ".join(f"`{command.path}`" for command in commands)


def _anchor(commands: list[Command]) -> str:
    """The anchor of the heading, as GitHub makes it."""
    return _title(commands).replace("`", "").replace(",", "").replace(" ", "-")


def _words(option: click.Parameter) -> tuple[str, ...]:
    """The words that an option allows; empty if any are."""
    kind = option.type.choice if isinstance(option.type, Names) else option.type
    return tuple(kind.choices) if isinstance(kind, click.Choice) else ()


def _written(option: click.Parameter) -> str:
    if isinstance(option, Argument):
        return option.make_metavar(_CONTEXT)
    assert isinstance(option, click.Option)
    value = (
        "" if option.is_flag else option.metavar or ("FORM" if _words(option) else option.opts[0].strip("-").upper())
    )
    return f"{option.opts[0]} {value}".rstrip()


def _named(option: click.Parameter) -> str:
    """A shared option, with its forms."""
    forms = f" ({', '.join(_words(option))})" if option.name == "output" else ""
    return f"`{option.opts[0] if isinstance(option, click.Option) else _written(option)}`{forms}"


def _option_row(option: click.Parameter, *, is_shared: bool = False) -> str:
    about, words = _key(option)[1], _words(option)
    if words and not (is_shared and option.name == "output"):
        about += f"; one of {', '.join(words)}"
    default = "" if is_shared and option.name == "output" else option.to_info_dict()["default"]
    shown = "" if default in (None, False, ()) else str(default)
    return f"| `{escaped(_written(option))}` | {shown} | {escaped(about)} |"
