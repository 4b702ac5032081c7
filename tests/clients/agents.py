"""As drive.py, with coding agents: Codex CLI and Claude Code, as npm installs them into the current directory.

    python tests/clients/agents.py NAME ROUNDS URL [URL]

A round is one prompt, after which the scripted model calls the agent's shell as often as it is set to, then responds with
text. What was seen is each JSON line that the agent prints, without the members that differ between any two runs. The agent's
home is an empty directory.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPT = "Count the steps."
# How long a round may take (seconds).
PATIENCE_S = 100
# Times, and names that an agent makes again in each run.
VOLATILE = frozenset(
    {
        "cwd",
        "duration_api_ms",
        "duration_ms",
        "memory_paths",
        "session_id",
        "thread_id",
        "time_to_request_ms",
        "timestamp",
        "ttft_ms",
        "ttft_stream_ms",
        "uuid",
    }
)


def codex(url: str) -> tuple[list[str], dict[str, str]]:
    given = ["--skip-git-repo-check", "--sandbox", "danger-full-access", "--json"]
    model = ["-c", "model=gpt-5.6", "-c", f'openai_base_url="{url}/v1"']
    return ["codex", "exec", *given, *model, PROMPT], {"OPENAI_API_KEY": "test"}


def claude(url: str) -> tuple[list[str], dict[str, str]]:
    given = ["--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"]
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return ["claude", "-p", PROMPT, *given], environment


# By name: the agent, and its package.
AGENTS = {
    "Codex CLI": (codex, "@openai/codex"),
    "Codex CLI, WebSocket": (codex, "@openai/codex"),
    "Claude Code": (claude, "@anthropic-ai/claude-code"),
}


def stable(value: Any) -> Any:
    """A value without its volatile members."""
    if isinstance(value, dict):
        return {name: stable(member) for name, member in value.items() if name not in VOLATILE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def one_round(command: list[str], environment: dict[str, str]) -> list[Any]:
    """Runs an agent to its end; gives what it printed, and its exit code."""
    with tempfile.TemporaryDirectory() as home:
        work = Path(home, "work")
        work.mkdir()
        path = f"{Path.cwd() / 'node_modules/.bin'}:/usr/local/bin:/usr/bin:/bin"
        done = subprocess.run(
            command,
            cwd=work,
            env={"PATH": path, "HOME": home, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        print(done.stderr.replace(home, "HOME"), file=sys.stderr, end="")
        return [stable(json.loads(line)) for line in done.stdout.replace(home, "HOME").splitlines()] + [done.returncode]


def main(name: str, rounds: int, urls: list[str]) -> None:
    agent, package = AGENTS[name]
    seen: list[Any] = []
    seconds: list[list[float]] = [[] for _ in urls]
    places = list(enumerate(urls))
    for _ in range(rounds):
        for place, url in places:
            begun = time.perf_counter()
            seen.append(one_round(*agent(url)))
            seconds[place].append(time.perf_counter() - begun)
        places.reverse()
    version = json.loads(Path("node_modules", package, "package.json").read_text())["version"]
    print(json.dumps({"version": version, "seen": seen, "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
