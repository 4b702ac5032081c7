"""Which clients a tap slows, warns or changes: each in one scripted conversation, directly and through `up`, by turns.

    python -m bench.clients [--installed DIR] [--timed N] [--document FILE] [NAME ...]

`--installed`: the folder of clients that are not in the development environment, as scripts/install_clients makes it. One
that is not there, or that fails, has a row with the reason. NAME: only these clients.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.clients import both_ways
from tests.clients.both_ways import Comparison, compared

from bench.document import replace_section, table, when_and_where

HEADER = [
    "client",
    "version",
    "requests",
    "output",
    "lines on stderr",
    "conversation",
    "added",
    "95 % interval",
    "at most 50 ms",
]
_FOLDER = both_ways.DRIVE.parent
TURNS = 10


class Client(NamedTuple):
    """A row of the table. `place`: the environment that has the client; the others are arguments of `compared`."""

    name: str
    place: str
    rounds: int = 2
    timed: int = 15
    turns: int = 1


CLIENTS = [
    *(
        Client(name, "development")
        for name in (
            "openai chat", "openai responses", "openai responses.connect", "openai realtime.connect", "anthropic",
            "google-genai", "boto3 bearer", "boto3 hook", "ollama", "mistralai", "cohere",
        )
    ),
    *(
        Client(name, "PyPI")
        for name in ("langchain-openai", "langchain-anthropic", "litellm openai", "litellm anthropic")
    ),
    *(Client(name, "npm") for name in ("openai-node", "vercel ai chat", "vercel ai responses")),
    *(
        Client(name, "agent", rounds=1, timed=6, turns=TURNS)
        for name in ("Codex CLI", "Codex CLI, WebSocket", "Claude Code")
    ),
]  # fmt: skip


def command(client: Client, installed: Path) -> list[str]:
    """The driver of a client."""
    if client.place == "npm":
        return ["node", str(_FOLDER / "drive.mjs"), client.name]
    if client.place == "agent":
        return [sys.executable, str(_FOLDER / "agents.py"), client.name]
    python = installed / "py/bin/python" if client.place == "PyPI" else sys.executable
    return [str(python), "-W", "default", str(both_ways.DRIVE), client.name]


def row(client: Client, found: Comparison) -> list[str]:
    """The line of a client that ran."""
    direct, tapped, differ, added = found.direct, found.tapped, found.differences, found.added

    def ways(alone: int, through: int, name: str) -> str:
        return f"{alone} / {through}, {'not equal' if name in differ else 'equal'}"

    verdict = {True: "yes", False: "no", None: "unknown: they vary more"}[added.within_limit]
    return [
        client.name,
        direct.version,
        ways(direct.requests, tapped.requests, "requests"),
        "not equal" if "seen" in differ else "equal",
        ways(len(direct.warnings), len(tapped.warnings), "warnings"),
        f"{found.direct_s * 1000:,.0f} ms",
        f"{added.median * 1000:+.1f} ms",
        f"{added.low * 1000:+.1f} to {added.high * 1000:+.1f}",
        verdict,
    ]


def measured(client: Client, installed: Path, folder: Path, timed: int) -> list[str]:
    """Its line, or the reason why it has no figures."""
    try:
        found = compared(
            client.name, folder, command(client, installed), rounds=client.rounds, timed=timed or client.timed,
            turns=client.turns, installed=installed / "node" if client.place in ("npm", "agent") else None,
        )  # fmt: skip
    except (OSError, RuntimeError, json.JSONDecodeError, AssertionError) as error:
        reason = " ".join(str(error).split())[-120:].replace("|", "/")
        return [client.name, "not run", reason, *[""] * (len(HEADER) - 3)]
    return row(client, found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these clients")
    parser.add_argument("--installed", type=Path, default=Path("build/clients"), help="the folder of installed clients")
    parser.add_argument("--timed", type=int, default=0, help="pairs of timed conversations of each client")
    parser.add_argument("--document", type=Path, help="write the table into this file, between its markers")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - {client.name for client in CLIENTS}:
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    lines = [HEADER]
    with tempfile.TemporaryDirectory() as folder:
        for number, client in enumerate(CLIENTS):
            if not given.names or client.name in given.names:
                line = measured(client, given.installed.resolve(), Path(folder, str(number)), given.timed)
                lines.append(line)
                print("  ".join(line), flush=True)
    if given.document is not None:
        replace_section(given.document, "clients", f"{table(lines)}\n\n{when_and_where()}")


if __name__ == "__main__":
    main()
