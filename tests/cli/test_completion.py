"""What shells complete, by the script that --install-completion writes, in the shells themselves."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from streamgauge.cli.commands import PROGRAM, STREAMGAUGE
from streamgauge.cli.main import main
from streamgauge.errors import DONE, USAGE
from tests.running import PATIENCE_S

pytestmark = pytest.mark.slow

# What bash does after a tab: it calls the function of `complete`.
_BASH = """
source ~/.bashrc
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_streamgauge_completion streamgauge
printf '%s\\n' "${COMPREPLY[@]}"
"""
# A terminal of its own, in which tab is pressed twice; zsh lists what fits, until the pattern in $2 is seen.
_ZSH = """
zmodload zsh/zpty
zpty terminal TERM=dumb zsh -f -i
zpty -w terminal 'PS1=; source ~/.zshrc; print READ"Y"'
zpty -r -m terminal line '*READY*'
zpty -w -n terminal "$1"$'\\t\\t'
zpty -r -m terminal line "$2" && print -r -- "$line"
zpty -d terminal
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home directory with the program in ~/bin, in which completion is installed for each shell, twice."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    program = home / "bin" / "streamgauge"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m streamgauge "$@"\n')
    program.chmod(0o755)
    (home / ".bashrc").write_text("# no newline at the end")
    for shell in ("bash", "zsh", "fish", "bash", "zsh", "fish"):
        done = run(home, "streamgauge", "--install-completion", shell)
        assert f"completion for {shell} is installed in {home}/" in done
    assert (home / ".bashrc").read_text() == "# no newline at the end\nsource ~/.bash_completions/streamgauge.sh\n"
    assert (home / ".zshrc").read_text().count("\n") == 1
    return home


def run(home: Path, *command: str) -> str:
    environment = {**os.environ, "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", "SHELL": "/bin/sh"}
    environment.pop("XDG_CONFIG_HOME", None)
    done = subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stdout


CASES = [
    (("t",), ["tap", "top", "topics"]),
    (("ledger", ""), ["query", "show", "export", "import", "price", "costs", "budgets"]),
    (("up", "pac"), ["packets"]),
    (("up", "--spool-"), ["--spool-bytes", "--spool-policy", "--spool-age"]),
    (("up", "packets", "--inter"), ["--interface"]),
    (("up", "--capture", ""), ["masked", "full"]),
    (("ledger", "query", "--output", "j"), ["json", "jsonl"]),
    (("replay", "--dialect", "openai-resp"), ["openai-responses"]),
    (("--ver",), ["--version"]),
]


@pytest.mark.parametrize(("words", "completed"), CASES)
def test_bash_completes(words: tuple[str, ...], completed: list[str], home: Path) -> None:
    assert run(home, "bash", "--norc", "-c", _BASH, "bash", "-", "streamgauge", *words).split() == completed


def test_bash_completes_a_value_after_an_equals_sign(home: Path) -> None:
    words = ("streamgauge", "up", "--capture", "=", "ma")
    assert run(home, "bash", "--norc", "-c", _BASH, "bash", "-", *words).split() == ["masked"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("words", "completed"), CASES)
def test_fish_completes(words: tuple[str, ...], completed: list[str], home: Path) -> None:
    found = run(home, "fish", "-c", f"complete -C 'streamgauge {' '.join(words)}'")
    assert sorted(line.partition("\t")[0] for line in found.splitlines()) == sorted(completed)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_file_names_where_no_word_fits(home: Path) -> None:
    (home / "recording.sse").touch()
    assert run(home, "fish", "-c", "complete -C 'streamgauge replay rec'").split() == ["recording.sse"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_lists_words_with_their_meaning(home: Path) -> None:
    pattern = "*export*write records as JSON lines, CSV or Parquet*"
    assert "export" in run(home, "zsh", "-f", "-c", _ZSH, "zsh", "streamgauge ledger ", pattern)


def test_completion_is_installed_beside_lines_in_another_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_bytes(b"# caf\xe9\n")
    for _ in range(2):
        assert main(["--install-completion", "bash"]) == DONE
    assert (tmp_path / ".bashrc").read_bytes() == b"# caf\xe9\nsource ~/.bash_completions/streamgauge.sh\n"


def test_candidates_of_values_and_paths() -> None:
    def candidates(*words: str) -> list[tuple[str, str]]:
        found = ShellComplete(STREAMGAUGE, {}, PROGRAM, "_STREAMGAUGE_COMPLETE").get_completions(
            [*words[:-1]], words[-1]
        )
        return [(item.type, item.value) for item in found]

    assert candidates("up", "--capture=f") == [("plain", "full")]
    assert candidates("up", "--data-dir", "") == [("dir", "")]
    assert candidates("up", "--tenants", "t") == [("file", "t")]
    assert candidates("replay", "rec") == [("file", "rec")]
    assert candidates("nonsense", "x") == []


def test_the_shell_is_that_of_the_user_or_the_named_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.getppid", lambda: -1)
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert main(["--show-completion"]) == DONE
    assert capsys.readouterr().out.startswith("function _streamgauge_completion;\n")
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["--show-completion"]) == USAGE
    assert "name a shell: bash, zsh, fish" in capsys.readouterr().err
    assert main(["--show-completion", "tcsh"]) == USAGE
    assert "Invalid value for '--show-completion': 'tcsh' is not one of bash, zsh, fish." in capsys.readouterr().err
