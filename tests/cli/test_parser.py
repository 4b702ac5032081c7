"""An option without its value, the help, and which modules --version and --help import."""

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import click
import pytest

from streamgauge.cli.commands import COMMANDS, GROUPS, STREAMGAUGE, parse
from streamgauge.cli.parser import CONFIG
from streamgauge.errors import USAGE
from tests.each import check_each, each
from tests.running import PATIENCE_S

HEAVY = {"aiohttp", "aiokafka", "asyncio", "faust", "msgspec", "sqlite3", "uvloop"}


NEEDED = {"deadletter show": ["1"]}
FOLLOWING = (["--config", "x"], ["--config=x"], ["--help"], ["-h"])


def taking_values(path: str) -> list[str]:
    """The options of a command that take a value."""
    command = COMMANDS[path]
    options = [one for one in (*command.options, CONFIG) if isinstance(one, click.Option) and not one.is_flag]
    settings = [one for one in command.settings if not one.type.is_switch]
    own = [flag for option in options for flag in option.opts]
    return [*own, *(flag for setting in settings for flag in (setting.flag, *setting.aliases))]


@each(COMMANDS)
def test_an_option_that_took_the_next_one_as_its_value_says_what_to_write(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each option before two of four others, by turns: which it is makes no difference."""

    def check(following: list[str], flag: str) -> None:
        with pytest.raises(SystemExit) as left:
            parse([*path.split(), *NEEDED.get(path, []), flag, *following])
        assert left.value.code == USAGE
        _, sentence = capsys.readouterr().err.splitlines()
        named = re.match(rf"streamgauge {path}: error: A value is missing: write (--\S+) \S+ before ", sentence)
        assert named
        assert named[1] == flag
        assert sentence.endswith(f" before {following[0].partition('=')[0]}")

    pairs = [
        (following, flag) for place, flag in enumerate(taking_values(path)) for following in FOLLOWING[place % 2 :: 2]
    ]
    check_each(pairs, lambda pair: check(*pair), str)


def test_a_flag_that_was_read_as_a_value_does_not_hide_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["up", "--data-dir", "--listen", "127.0.0.1:80"])
    assert capsys.readouterr().err.splitlines() == [
        "Usage: streamgauge up [OPTIONS] | COMMAND [ARGS]...",
        "streamgauge up: error: A value is missing: write --data-dir DIR before --listen",
    ]
    with pytest.raises(SystemExit):
        parse(["ledger", "query", "--limit"])
    assert capsys.readouterr().err.endswith(" error: A value is missing: write --limit N\n")
    with pytest.raises(SystemExit):
        parse(["worker", "--kafka-username", "--CANARY"])
    assert "CANARY" not in capsys.readouterr().err


def test_a_value_with_dashes_is_written_after_an_equals_sign() -> None:
    assert parse(["up", "--data-dir=--odd", "--upstream", "http://x"]).settings["data_dir"] == "--odd"
    assert parse(["replay", "--", "--odd"]).paths == [Path("--odd")]


def imported_by(*words: str) -> set[str]:
    program = (
        "import sys\nfrom streamgauge.cli.main import main\n"
        f"main({list(words)!r})\nprint('IMPORTED', *{{name.partition('.')[0] for name in sys.modules}})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return set(done.stdout.rpartition("IMPORTED ")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--version",), ("--help",), ("up", "--help"), ("worker", "--help"), ("deadletter", "list", "--help")]
)
def test_help_imports_no_module_that_a_command_needs_to_run(words: tuple[str, ...]) -> None:
    assert imported_by(*words) & HEAVY == set()


@pytest.mark.slow
def test_help_into_a_pipe_is_plain() -> None:
    for words in (["worker"], ["up"], ["ledger", "query"]):
        done = subprocess.run(
            ["env", "COLUMNS=80", sys.executable, "-m", "streamgauge", *words, "--help"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        assert "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80


# Everything that has a help of its own: the program, groups and commands.
HELPED = ["", *GROUPS, *COMMANDS]


@each(product([80, 120], HELPED))
def test_help_fits_its_terminal_and_shows_each_option_on_a_line_of_its_own(
    case: tuple[int, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    width, path = case
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit):
        parse([*path.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1]
    assert lines[0].startswith(f"Usage: streamgauge {path}".rstrip())
    about = lines[2 : lines.index("", 2)]
    assert about[-1].endswith(".")
    assert max(map(len, lines)) <= width
    example = next(place for place, line in enumerate(lines) if line in ("examples:", "example:"))
    assert [line for line in lines[:example] if line.startswith((" -", "-"))] == []
    titles = [line for line in lines[:example] if line.endswith(":") and not line.startswith(" ")]
    assert len(titles) == len(set(titles))
    if path in COMMANDS:
        needed = [setting.flag for setting in COMMANDS[path].settings if setting.required.get(path) == ""]
        shown = " ".join(" ".join(lines).split())
        assert shown.count("[required]") == len(needed)


def test_the_first_help_shows_each_command_once_and_which_need_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    before, kafka = (
        capsys.readouterr().out.partition("\nCommands:")[2].partition("\nOptions:")[0].split("Commands for Kafka:")
    )
    words = [re.findall(r"^  (\w+) ", part, re.MULTILINE) for part in (before, kafka)]
    assert sorted(words[0] + words[1]) == sorted(STREAMGAUGE.commands)
    assert words[1] == ["tap", "worker", "topics", "deadletter"]
