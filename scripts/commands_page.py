"""Makes docs/reference/commands.md from the table of commands: usage, exit codes, options, examples."""

from collections.abc import Iterator

from scripts.settings_page import section_of

from streamgauge.cli.commands import COMMANDS, Command
from streamgauge.cli.help_text import usage
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
    "ledger budgets": "a budget is spent",
    "audit": "the difference has a cause, or is above the tolerance",
    "audit diff": "the runs differ",
    "topics create": "an existing topic differs",
    "topics describe": "there is no topic with this prefix",
    "deadletter retry": "some messages were not sent back",
    **dict.fromkeys(("doctor", "doctor up", "doctor tap", "doctor worker"), "a check failed; a warning is no failure"),
}


def commands_page() -> Iterator[str]:
    """The lines of the page, after its head."""
    yield from (
        "`streamgauge COMMAND --help` prints the same with the settings. Results go to stdout, messages to stderr.",
        "[Settings](settings.md) has every option with its variable and its key in a settings file.",
        "",
        "| command | what it does |",
        "|---|---|",
    )
    yield from (f"| [`{path}`](#{path.replace(' ', '-')}) | {command.about} |" for path, command in COMMANDS.items())
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
    for command in COMMANDS.values():
        yield from _command(command)
    yield ""


def _command(command: Command) -> Iterator[str]:
    yield from ("", f"## `{command.path}`", "", f"{command.about[0].upper()}{command.about[1:]}.", "")
    written = usage(command.path).removeprefix("usage: streamgauge ")
    yield f"Usage: `{written}` ([options and settings](settings.md#{section_of(command)}))"
    examples, *notes = command.epilog.strip().split("\n\n")
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
