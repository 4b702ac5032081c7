"""What a shell completes, and the scripts that make it ask: for bash, zsh and fish.

A script calls `streamgauge` with the words before the cursor, the last of which is incomplete, and with the shell's name in
_STREAMGAUGE_COMPLETE. The answer has a line for each word that fits. If there is none, the shell completes file names.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.cli.commands import (
    COMMANDS,
    GROUPS,
    HELP,
    first_words,
    flags_of,
    is_argument,
    is_switch,
    options_of,
    second_words,
)
from streamgauge.cli.options import Option
from streamgauge.settings.types import Setting

_BASH = """\
_streamgauge_completion() {
    local IFS=$'\\n'
    COMPREPLY=($(_STREAMGAUGE_COMPLETE=bash "$1" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _streamgauge_completion streamgauge
"""
# zsh runs the file itself at the first completion, if it found it in `fpath`.
_ZSH = """\
#compdef streamgauge
_streamgauge_completion() {
    local -a found
    found=("${(@f)$(_STREAMGAUGE_COMPLETE=zsh "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then
        _describe -V streamgauge found
    else
        _files
    fi
}
if [[ "${zsh_eval_context[-1]}" == loadautofunc ]]; then
    _streamgauge_completion "$@"
else
    compdef _streamgauge_completion streamgauge
fi
"""
_FISH = """\
function _streamgauge_completion
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l found (env _STREAMGAUGE_COMPLETE=fish $words[1] $words[2..-1] "$current" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command streamgauge --no-files --arguments '(_streamgauge_completion)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
# Where the script is installed, and the shell's own file with the line that finds it, below the home directory.
_PLACES = {
    "bash": (".bash_completions/streamgauge.sh", ".bashrc", "source ~/.bash_completions/streamgauge.sh"),
    "zsh": (".zfunc/_streamgauge", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/streamgauge.fish", None, None),
}
# Options of the program itself.
_ROOT = ("--version", "--install-completion", "--show-completion", *HELP)

# A word, and what it means (empty if there is no more to say).
Candidate = tuple[str, str]


def shell_of(words: Sequence[str]) -> str:
    """The shell that the words name; without words the one that started this process. Raises ValueError."""
    name = words[0] if words else _calling_shell()
    if name not in _SCRIPTS or len(words) > 1:
        known = ", ".join(_SCRIPTS)
        raise ValueError(f"invalid choice: {name!r} (choose from {known})" if words else f"name a shell: {known}")
    return name


def _calling_shell() -> str:
    with contextlib.suppress(OSError):  # a system without /proc
        name = Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
        if name in _SCRIPTS:
            return name
    return Path(os.environ.get("SHELL", "")).name


def script_of(shell: str) -> str:
    """The script of one of the shells."""
    return _SCRIPTS[shell]


def install_completion(shell: str) -> str:
    """Writes the script below the home directory, and the line that finds it into the shell's own file, once.

    Returns what was done, in lines. Raises OSError.
    """
    place, own, line = _PLACES[shell]
    script = Path.home() / place
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SCRIPTS[shell], encoding="utf-8")
    if own is not None and line is not None:
        file = Path.home() / own
        before = file.read_text(encoding="utf-8") if file.exists() else ""
        if line not in before.splitlines():
            end = "\n" if before and not before.endswith("\n") else ""
            with file.open("a", encoding="utf-8") as added:
                added.write(f"{end}{line}\n")
    return f"completion for {shell} is installed in {script}: start a new shell to use it\n"


def print_completions(shell: str, words: Sequence[str]) -> None:
    """Prints the words that fit, in the form that the shell's script reads. `words`: the last one is incomplete."""
    *before, incomplete = words or [""]
    for word, about in candidates(before, incomplete):
        if shell == "zsh":
            escaped = word.replace(":", "\\:")  # a colon ends the word
            sys.stdout.write(f"{escaped}:{about}\n" if about else f"{escaped}\n")
        elif shell == "fish":
            sys.stdout.write(f"{word}\t{about}\n" if about else f"{word}\n")
        else:
            sys.stdout.write(f"{word}\n")


def candidates(before: Sequence[str], incomplete: str) -> Iterator[Candidate]:
    """The words that may stand after the words `before` and begin with `incomplete`."""
    before = [word for word in before if word != "="]  # bash makes words of its own of --output=json
    if incomplete == "=":
        incomplete = ""
    path = " ".join(before[:2]) if " ".join(before[:2]) in COMMANDS else " ".join(before[:1])
    known = {flag: one for one in options_of(path) if not is_argument(one) for flag in flags_of(one)}
    flag, has_value, _ = incomplete.partition("=")
    if has_value and flag in known:
        found: Iterator[Candidate] = ((f"{flag}={word}", "") for word in _choices(known[flag]))
    elif before and before[-1] in known and not is_switch(known[before[-1]]):
        found = ((word, "") for word in _choices(known[before[-1]]))
    elif incomplete.startswith("-"):
        found = _options(path)
    else:
        found = _words(before)
    return (one for one in found if one[0].startswith(incomplete))


def _choices(one: Option | Setting) -> tuple[str, ...]:
    return one.words() if isinstance(one, Option) else one.type.choices


def _options(path: str) -> Iterator[Candidate]:
    for one in options_of(path):
        if not is_argument(one) and not (isinstance(one, Option) and one.hidden):
            yield from ((flag, one.about) for flag in flags_of(one))
    yield from ((flag, "") for flag in (HELP if path in COMMANDS or path in GROUPS else _ROOT))


def _words(before: Sequence[str]) -> Iterator[Candidate]:
    """The first or second words of commands."""
    if not before:
        yield from first_words().items()
    elif len(before) == 1:
        yield from ((word, COMMANDS[f"{before[0]} {word}"].about) for word in second_words(before[0]))
