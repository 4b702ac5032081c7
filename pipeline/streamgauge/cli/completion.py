"""Completion in bash, zsh and fish: click's scripts, and where they are installed."""

import contextlib
import os
from pathlib import Path

from click.shell_completion import BashComplete, add_completion_class, get_completion_class, shell_complete

from streamgauge.cli.commands import PROGRAM, STREAMGAUGE

# Set by click's scripts: what they ask for, and the shell.
VARIABLE = "_STREAMGAUGE_COMPLETE"
# Where the script is installed, and the shell's own file with the line that finds it, below the home directory.
_FILES = {
    "bash": (".bash_completions/streamgauge.sh", ".bashrc", "source ~/.bash_completions/streamgauge.sh"),
    "zsh": (".zfunc/_streamgauge", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/streamgauge.fish", None, None),
}


@add_completion_class
class _Bash(BashComplete):
    """Bash makes words of its own of `--output=json`: without the sign, click completes the value."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        return [word for word in words if word != "="], incomplete


def complete(instruction: str) -> int:
    """Prints what a shell asks for: the value of VARIABLE. Returns the exit code."""
    return shell_complete(STREAMGAUGE, {}, PROGRAM, VARIABLE, instruction)


def shell_of(name: str) -> str:
    """The named shell; for an empty name the one that started this process. Raises ValueError."""
    shells = ", ".join(_FILES)
    if name and name not in _FILES:
        raise ValueError(f"{name!r} is not one of {shells}.")
    name = name or _calling_shell()
    if name not in _FILES:
        raise ValueError(f"name a shell: {shells}.")
    return name


def _calling_shell() -> str:
    with contextlib.suppress(OSError):  # a system without /proc
        name = Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
        if name in _FILES:
            return name
    return Path(os.environ.get("SHELL", "")).name


def script_of(shell: str) -> str:
    """The script of one of the shells."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    return completion_class(STREAMGAUGE, {}, PROGRAM, VARIABLE).source()


def install_completion(shell: str) -> str:
    """Writes the script below the home directory, and the line that finds it into the shell's own file, once.

    Returns what was done. Raises OSError.
    """
    path, own, line = _FILES[shell]
    script = Path.home() / path
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(script_of(shell), encoding="utf-8")
    if own is not None and line is not None:
        file = Path.home() / own
        before = file.read_bytes() if file.exists() else b""  # in an encoding of the user's own
        if line.encode() not in before.splitlines():
            end = "\n" if before and not before.endswith(b"\n") else ""
            with file.open("a", encoding="utf-8") as added:
                added.write(f"{end}{line}\n")
    return f"completion for {shell} is installed in {script}: start a new shell to use it"
