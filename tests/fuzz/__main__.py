"""`python -m tests.fuzz TARGET [--seconds N] [--corpus DIR]`: one target under atheris, or `all`, starting with the
vectors.

Exit codes: 0 nothing was found, 2 wrong usage, 3 atheris is not available here, any other: something was found. Then its
bytes are in DIR/TARGET as `crash-*`, and `python -m tests.fuzz TARGET FILE` runs them alone.
"""

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

# The targets, repeated here: `targets` itself must only be imported while atheris instruments imports.
NAMES = (
    *("sse", "reader", "aws_messages", "framing", "body", "response", "json_check", "json_text"),
    *("masker", "rate_limit", "usage", "stream", "log", "bundle", "recording", "invoice", "envoy", "gateway_log"),
)

# More than any target has.
ALL_SEEDS = 1_000_000
# An input that takes longer is a finding (seconds), as is one that grows a process beyond this (MiB).
TIMEOUT_S = 60
RSS_LIMIT_MB = 2_048
# The maximum size of inputs (bytes): the vectors and a few hostile values fit, and many run per second.
MAX_LEN = 16_384
# One in this many mutations is libFuzzer's own, of single bytes: for structured inputs, structured mutations find more.
BYTES_ONE_IN = 3


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz one target with atheris.")
    parser.add_argument("target", help=f"all, or one of {', '.join(NAMES)}")
    parser.add_argument("files", nargs="*", type=Path, help="inputs to run once, without fuzzing")
    parser.add_argument("--seconds", type=int, default=60, help="how long (default 60)")
    parser.add_argument("--seeds", type=int, default=ALL_SEEDS, help="begin with so many of the seeds (default all)")
    parser.add_argument("--corpus", type=Path, help="where inputs are kept (default: a folder that is thrown away)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    given = parsed(arguments)
    names = NAMES if given.target == "all" else (given.target,)
    if not set(names) <= set(NAMES):
        print(f"scripts/fuzz: no target {given.target!r}; there are: all, {', '.join(NAMES)}", file=sys.stderr)
        return 2
    try:
        import atheris
    except ImportError:
        print("scripts/fuzz: atheris is not installed: it is made for Linux on x86-64", file=sys.stderr)
        return 3
    with atheris.instrument_imports(include=["streamgauge.core", "streamgauge.recorder"]):
        from tests.fuzz.targets import TARGETS
    if given.files:
        for path in given.files:
            TARGETS[given.target].check(path.read_bytes())
        return 0
    corpora = given.corpus or Path(tempfile.mkdtemp(prefix="fuzz-"))
    for name in names:
        print(f"== {name}, in {corpora / name}", file=sys.stderr, flush=True)
        if (code := in_a_child(atheris, TARGETS[name], corpora / name, given)) != 0:
            return code
    return 0


def in_a_child(atheris: ModuleType, target: "Target", corpus: Path, given: argparse.Namespace) -> int:
    """The exit code of a separate process, since libFuzzer ends the one in which it runs."""
    child = os.fork()
    if child == 0:
        plant(target.seeds(), corpus, given.seeds)
        fuzz(atheris, target, corpus, given.seconds)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def plant(seeds: list[bytes], corpus: Path, most: int) -> None:
    """Adds seeds to the folder's content; if not all of them, then evenly spread over them."""
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in seeds[:: max(1, len(seeds) // max(most, 1))]:
        (corpus / hashlib.sha256(seed).hexdigest()).write_bytes(seed)


def fuzz(atheris: ModuleType, target: "Target", corpus: Path, seconds: int) -> None:
    """Runs until the time is over or something is found; then the process ends, with libFuzzer's exit code."""
    options = [f"-max_total_time={seconds}", f"-max_len={MAX_LEN}", f"-timeout={TIMEOUT_S}"]
    options += [f"-rss_limit_mb={RSS_LIMIT_MB}", f"-artifact_prefix={corpus}/", "-print_final_stats=1"]
    by_meaning = target.mutate

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        if by_meaning is None or seed % BYTES_ONE_IN == 0:
            return bytes(atheris.Mutate(data, most))
        return by_meaning(data, seed)[:most]

    own = {} if by_meaning is None else {"custom_mutator": mutate}
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.check, **own)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
