"""Every command: its words, sentence, examples, module, and the options that are not settings.

services.py       `up`, `tap`, `worker`; `top`
recordings.py     `replay`, `recount`, `demo`
ledger.py         `ledger`
audit.py          `audit`
installation.py   `rules`, `config`, `doctor`, `assets`
kafka.py          `topics`, `deadletter`
options.py        short forms of options

Settings are declared in `settings/declarations.py`. Modules of commands and settings are imported when they are needed: help
and completion are quick, and work where the packages of a command's extra are missing.
"""

import sys
from collections.abc import Sequence

import click

from streamgauge import __version__
from streamgauge.cli.commands.audit import AUDIT
from streamgauge.cli.commands.installation import ASSETS, CONFIG, DOCTOR, RULES
from streamgauge.cli.commands.kafka import DEADLETTER, TOPICS
from streamgauge.cli.commands.ledger import LEDGER
from streamgauge.cli.commands.recordings import DEMO, RECOUNT, REPLAY
from streamgauge.cli.commands.services import TAP, TOP, UP, WORKER
from streamgauge.cli.parser import CONTEXT, Arguments, Group, commands_below
from streamgauge.errors import USAGE
from streamgauge.runtime.redaction import redacted_text

PROGRAM = "streamgauge"


def _complete(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Installs or prints the completion of a shell, and ends."""
    if value is None or ctx.resilient_parsing:
        return
    from streamgauge.cli.completion import install_completion, script_of, shell_of

    try:
        shell = shell_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, option) from None
    click.echo(install_completion(shell) if option.name == "install_completion" else script_of(shell))
    ctx.exit()


def _completion(flag: str, about: str) -> click.Option:
    """An option of the program whose value is a shell; without a value it is that of the user."""
    return click.Option(
        [flag],
        help=about,
        metavar="[SHELL]",
        is_flag=False,
        flag_value="",
        is_eager=True,
        expose_value=False,
        callback=_complete,
    )


def _version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {__version__}")
        ctx.exit()


STREAMGAUGE = Group(
    "",
    "measures streaming LLM responses: latency, outcome and token usage of each one",
    """\
examples:
  streamgauge demo
      shows what is measured, without an API key
  streamgauge up --upstream openai=https://api.openai.com
      then set the base URL of clients to http://127.0.0.1:8080/openai/v1
  streamgauge ledger query --newest --limit 10
      the latest records that `up` or a worker stored
  streamgauge replay recording.sse

`streamgauge COMMAND --help` shows the options of a command.

Each setting is an option, a variable STREAMGAUGE_<NAME> of the environment, and a key of the settings file
(--config FILE, TOML): --spool-age is STREAMGAUGE_SPOOL_AGE and spool_age; --port is short for --server-ports. An option comes
before a variable, a variable before the file. The sections Arguments and Options of a command's help list what is no setting.

Exit codes: 0 success, 1 finished and found a problem, 2 wrong usage or settings, 3 a required service is unavailable,
70 internal error, 75 a worker was stuck, 130 ended by Ctrl-C. A second signal ends a command at once, with 128 + its
number.
""",
    (
        click.Option(
            ["--version"], help="show the version", is_flag=True, is_eager=True, expose_value=False, callback=_version
        ),
        _completion(
            "--install-completion",
            "install completion of commands and options for this shell, or for bash, zsh or fish",
        ),
        _completion("--show-completion", "print the completion script of this shell, or of bash, zsh or fish"),
    ),
    commands=[
        UP, TAP, WORKER, TOP, REPLAY, RECOUNT, DEMO, LEDGER, AUDIT, RULES, CONFIG, DOCTOR, ASSETS, TOPICS,
        DEADLETTER,
    ],
    context_settings=CONTEXT,
)  # fmt: skip
# The commands by their words, in the order of the help; and the words that are no command themselves.
COMMANDS = {command.path: command for command in commands_below(STREAMGAUGE)}
GROUPS = {group.path: group for group in STREAMGAUGE.commands.values() if isinstance(group, Group) and not group.module}


def parse(words: Sequence[str]) -> Arguments:
    """Reads the words after the program's name. Raises SystemExit after --help, or after an error, which it prints."""
    try:
        with STREAMGAUGE.make_context(PROGRAM, list(words)) as context:
            arguments = STREAMGAUGE.invoke(context)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.UsageError as error:
        if error.ctx is not None:
            sys.stderr.write(f"{error.ctx.get_usage()}\n")
        path = PROGRAM if error.ctx is None else error.ctx.command_path
        sys.stderr.write(redacted_text(f"{path}: error: {error.format_message()}\n"))
        raise SystemExit(USAGE) from None
    assert isinstance(arguments, Arguments)
    return arguments
