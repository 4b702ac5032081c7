"""Commands in click's terms: `commands/` declares them with these classes, and `settings/declarations.py` their settings.

Click parses the words, makes help and errors, and completes in shells. These classes add the options of settings, help in
sections with examples, and errors that say what to write. Settings are passed on as text:
`settings/sources.py` reads them, so that an option, a variable and a key of the file mean the same.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from streamgauge.errors import USAGE

if TYPE_CHECKING:  # help needs neither
    from pathlib import Path

    from streamgauge.settings.types import Setting

# How a command prints rows. json: one JSON document; jsonl: one JSON document a line.
TABLE, CSV, TEXT, JSON, JSONL, HTML = "table", "csv", "text", "json", "jsonl", "html"

# The widest help (columns): longer lines are hard to read.
_MAX_WIDTH = 110
# The left column is at most this wide (columns): the rest of an 80-column terminal is for the sentences.
_LEFT = 32
# What precedes the explanation of an example.
_INDENT = " " * 6
_HELP = ("-h", "--help")
# Lines break at hyphens, which would cut names of options: while click makes the lines, they are non-breaking ones.
_NON_BREAKING = "\u2011"
# What the program's context and those of its commands share.
CONTEXT = {
    "help_option_names": list(_HELP),
    "max_content_width": _MAX_WIDTH,
    "color": False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None,
}


class PathType(click.Path):
    """A path, as a Path. It is not looked at: commands say what is wrong with it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Fails for an empty one, which Path would read as the current directory."""
        from pathlib import Path  # which takes time to import

        if not value:
            self.fail("the path is empty: write one, or leave it out", param, ctx)
        return Path(value)


CONFIG = click.Option(
    ["--config"],
    help="settings file (TOML); or set STREAMGAUGE_CONFIG in the environment",
    metavar="FILE",
    type=PathType(),
)


class Arguments(SimpleNamespace):
    """What was written on the command line: the options that are not settings, as attributes, and these.

    `command`: the word or words that messages begin with; `action`: the second word; `serves`: the commands whose
    settings it uses; `loads`: whether it needs the settings; `settings`: the given settings, by name, as text, list of text
    or True.
    """

    command: str
    action: str
    serves: tuple[str, ...]
    module: str
    loads: bool
    config: "Path | None"
    settings: dict[str, Any]


class Argument(click.Argument):
    """An argument with a line in the help. `many`: it takes all words that are left."""

    def __init__(
        self, name: str, metavar: str, about: str, *, many: bool = False, required: bool = False, **more: Any
    ) -> None:
        shown = (metavar if required else f"[{metavar}]") + ("..." if many else "")
        super().__init__([name], metavar=shown, nargs=-1 if many else 1, required=required, **more)
        self.help = about
        self._shown_in_errors = metavar

    def get_error_hint(self, ctx: click.Context) -> str:
        """Its name in errors."""
        return f"'{self._shown_in_errors}'"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Its row in the help."""
        return self.make_metavar(ctx), self.help


class Names(click.ParamType):
    """One of some words that take time to import: they are read when they are needed."""

    name = "name"

    def __init__(self, words: Callable[[], Sequence[str]]) -> None:
        self._words = words

    @cached_property
    def choice(self) -> "click.Choice[str]":
        """The type with its words."""
        return click.Choice(self._words())

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word. Fails for another one."""
        return self.choice.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The words that fit."""
        return self.choice.shell_complete(ctx, param, incomplete)


class SettingOption(click.Option):
    """The option of a setting. Its value is text, which is checked with those of the environment and the settings file."""

    def __init__(self, setting: "Setting", command: str) -> None:
        more: dict[str, Any] = {"is_flag": True} if setting.type.is_switch else {"metavar": setting.type.metavar}
        super().__init__(
            [setting.name, setting.flag, *setting.aliases],
            help=setting.about,
            multiple=setting.type.is_list,
            **more,
        )
        self.setting = setting
        self._note = setting.note(command)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its row in the help."""
        record = super().get_help_record(ctx)
        return (record[0], f"{record[1]}  [{self._note}]") if record and self._note else record

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The words that fit, or that the shell completes a path."""
        if self.setting.type.choices:
            return [CompletionItem(word) for word in self.setting.type.choices if word.startswith(incomplete)]
        kind = {"FILE": "file", "DIR": "dir"}.get(self.setting.type.metavar)
        return [CompletionItem(incomplete, type=kind)] if kind else []


class Command(click.Command):
    """A command that runs `streamgauge.cli.<module>`; without a module it only has other commands.

    `path`: its words; `about`: what it does, a phrase; `examples`: the end of its help, notes among it; `options`: those
    that are no settings, and arguments; `takes`: the commands whose settings are options of this one, too, but not in its
    help; `loads`: whether it needs the settings; `kafka`: whether it is among the commands for Kafka.
    """

    def __init__(
        self,
        path: str,
        about: str,
        examples: str,
        options: tuple[click.Parameter, ...] = (),
        *,
        module: str = "",
        takes: tuple[str, ...] | Callable[[], tuple[str, ...]] = (),
        loads: bool = True,
        kafka: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(
            path.rpartition(" ")[2],
            params=[*options, CONFIG] if module else list(options),
            help=f"{about[0].upper()}{about[1:]}.",
            short_help=about,
            epilog=examples,
            **more,
        )
        self.path = path
        self.about = about
        self.examples = examples
        self.options = options
        self.module = module
        self.loads = loads
        self.kafka = kafka
        self._takes = takes

    @property
    def takes(self) -> tuple[str, ...]:
        """The commands whose settings are options of this one, too."""
        return self._takes() if callable(self._takes) else self._takes

    @cached_property
    def settings(self) -> "list[Setting]":
        """The settings that it has an option for, in the order of the help."""
        if not self.module:
            return []
        from streamgauge.settings.declarations import SECTIONS, SETTINGS  # which take time to import

        paths = {self.path, *self.takes}
        declared = [setting for setting in SETTINGS.values() if not paths.isdisjoint(setting.commands)]
        return sorted(declared, key=lambda setting: SECTIONS.index(setting.section))

    @cached_property
    def _setting_options(self) -> list[SettingOption]:
        return [SettingOption(setting, self.path) for setting in self.settings]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The arguments and options."""
        *own, help_option = super().get_params(ctx)
        if isinstance(help_option, click.Option):
            help_option.help = "show this help"
        return [*own, *self._setting_options, help_option]

    def owned_flags(self) -> set[str]:
        """Its options, without those that it takes from other commands."""
        settings = [] if self.takes else self._setting_options
        return {
            flag for option in (*self.params, *settings) if isinstance(option, click.Option) for flag in option.opts
        }

    # --- words ------------------------------------------------------------------------------------------------------

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does. An option whose value was left out is an error; one of another command names that command."""
        takes_more = ctx.allow_extra_args
        ctx.allow_extra_args = True  # the sentence about them is ours
        if self.path and not ctx.resilient_parsing:  # the program's own options have a default for a missing value
            self._check_values(ctx, args)
        try:
            surplus = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ctx.fail(f"No such option: {error.option_name}{self._hint(ctx, error.option_name)}")
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click leaves it out for a value that an option does not take
            raise
        if surplus and not takes_more and not ctx.resilient_parsing:
            ctx.fail(f"Unexpected argument {surplus[0]!r}: leave it out, or see `{ctx.command_path} --help`")
        return surplus

    def _hint(self, ctx: click.Context, flag: str) -> str:
        """The end of a sentence: where an unknown option belongs, else the option most like it, else the help."""
        from streamgauge.runtime.nearest import nearest

        flags = self._flags(ctx)
        if f"{flag}-file" in flags:  # a secret, which every user of the host could read in the command line
            return f"; did you mean {flag}-file?"
        commands = commands_below(ctx.find_root().command)
        of = [command.path for command in commands if flag in command.owned_flags()]
        if of and not self.path:
            return f"; write it after the command, as in `{ctx.command_path} {of[0]} {flag}`"
        if of:
            return f"; it is an option of `{'`, `'.join(of)}`"
        return nearest(flag, flags) or f"; see `{ctx.command_path} --help`"

    def _flags(self, ctx: click.Context) -> list[str]:
        return [flag for option in self.get_params(ctx) if isinstance(option, click.Option) for flag in option.opts]

    def _check_values(self, ctx: click.Context, args: Sequence[str]) -> None:
        """Fails for an option that would take the next one as its value.

        A value with dashes is possible after "=", as in --data-dir=--odd.
        """
        params = self.get_params(ctx)
        taking = {
            flag: option
            for option in params
            if isinstance(option, click.Option) and not option.is_flag
            for flag in option.opts
        }
        waiting: str | None = None
        for word in args:
            if waiting is not None:
                if word.startswith("--") or word in _HELP:
                    name = word.partition("=")[0]
                    # An unknown word may be a password.
                    self._fail_without(
                        ctx,
                        waiting,
                        taking[waiting],
                        f" before {name if name in self._flags(ctx) else 'the next option'}",
                    )
                waiting = None
            elif word == "--" or not (ctx.allow_interspersed_args or word.startswith("-")):
                return
            elif word in taking:
                waiting = word
        if waiting is not None:
            self._fail_without(ctx, waiting, taking[waiting], "")

    def _fail_without(self, ctx: click.Context, flag: str, option: click.Option, before: str) -> None:
        raise click.BadOptionUsage(flag, f"A value is missing: write {flag} {option.make_metavar(ctx)}{before}", ctx)

    def invoke(self, ctx: click.Context) -> Arguments | None:
        """What the words say; None where another command is named after this one."""
        written = [
            param
            for param in self.get_params(ctx)
            if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        ]
        if ctx.invoked_subcommand:
            if written and ctx.parent is not None:
                word, flag = ctx.invoked_subcommand, written[0].opts[0]
                assert isinstance(self, Group)
                below = self.commands[word]
                if not (isinstance(below, Command) and flag in below._flags(ctx)):
                    ctx.fail(f"{flag} is no option of `{self.path} {word}`: leave out {flag} or `{word}`")
                ctx.fail(f"Write {flag} after `{self.path} {word}`, or leave out `{word}`")
            return None
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in ctx.params.items()}
        settings = {option.setting.name: values.pop(option.setting.name) for option in self._setting_options}
        named = {option.setting.name for option in written if isinstance(option, SettingOption)}
        group = ctx.parent.command if ctx.parent is not None else None
        is_word_alone = isinstance(group, Command) and group.path and not group.module
        return Arguments(
            command=self.path.partition(" ")[0] if is_word_alone else self.path,
            action=self.path.partition(" ")[2],
            serves=(self.path, *self.takes),
            module=self.module,
            loads=self.loads,
            settings={name: value for name, value in settings.items() if name in named},
            **values,
        )

    # --- help -------------------------------------------------------------------------------------------------------

    def get_help(self, ctx: click.Context) -> str:
        """The help."""
        return super().get_help(ctx).replace(_NON_BREAKING, "-")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the arguments and options, settings by their sections."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            title = "Arguments" if isinstance(param, click.Argument) else "Options"
            if isinstance(param, SettingOption):
                if self.takes:  # the help of the commands that it takes them from names them
                    continue
                title = param.setting.section
            if (record := param.get_help_record(ctx)) is not None:
                left, right = record
                if isinstance(param.type, Names):
                    right += f"; one of {', '.join(param.type.choice.choices)}"
                sections.setdefault(title, []).append((left, right))
        _write_sections(formatter, sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples as they are, with their explanations wrapped, and the notes after them."""
        examples, *notes = self.examples.strip().split("\n\n")
        formatter.write_paragraph()
        for line in examples.splitlines():
            is_example = not line.startswith(_INDENT)
            shown = line if is_example else click.wrap_text(_kept(line.strip()), formatter.width, _INDENT, _INDENT)
            formatter.write(f"{shown}\n")
        for note in notes:
            formatter.write_paragraph()
            if any(line.startswith(" ") for line in note.splitlines()):
                formatter.write(f"{note}\n")
            else:
                formatter.write_text(_kept(note))


def _kept(text: str) -> str:
    return text.replace("-", _NON_BREAKING)


def _write_sections(formatter: click.HelpFormatter, sections: dict[str, list[tuple[str, str]]]) -> None:
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl([(click.style(left, fg="cyan"), _kept(right)) for left, right in rows], _LEFT)


class Group(click.Group, Command):
    """A word that other commands begin with. With a module it is a command itself."""

    def __init__(
        self,
        path: str,
        about: str,
        examples: str,
        options: tuple[click.Parameter, ...] = (),
        *,
        commands: Sequence[Command],
        module: str = "",
        **more: Any,
    ) -> None:
        super().__init__(
            path,
            commands,
            invoke_without_command=bool(module),
            subcommand_metavar="| COMMAND [ARGS]..." if module else "COMMAND [ARGS]...",
            about=about,
            examples=examples,
            options=options,
            module=module,
            **more,
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The words of its commands, in the order of the help."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does. Without words it prints the help."""
        if not args and not self.module and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names. Fails if there is none."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            from pathlib import Path

            from streamgauge.runtime.nearest import nearest

            if self.module and Path(args[0]).exists():
                ctx.fail(
                    f"{args[0]} is a file without an option: write the option before each file, again for each one"
                )
            choices = f"{', '.join(self.commands)}{', or leave it out' if self.module else ''}"
            ctx.fail(f"No such command {args[0]!r}: choose from {choices}{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, then the options."""
        self.format_commands(ctx, formatter)
        Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, those for Kafka apart."""
        sections: dict[str, list[tuple[str, str]]] = {"Commands": [], "Commands for Kafka": []}
        for word, command in self.commands.items():
            for_kafka = isinstance(command, Command) and command.kafka
            sections["Commands for Kafka" if for_kafka else "Commands"].append((word, command.short_help or ""))
        _write_sections(formatter, sections)


def commands_below(command: click.Command) -> Iterator[Command]:
    """The commands of a group that run something, in the order of the help; itself among them."""
    if isinstance(command, Command) and command.module:
        yield command
    if isinstance(command, Group):
        for below in command.commands.values():
            yield from commands_below(below)
