"""Seeded mutants: small changes of the code that tests should notice, and the tests that do.

    python -m scripts.mutants [--count 100] [--seed 1] [--mutants FILE] [--tree TREE] [--jobs 1] [--results FILE]

Chooses `count` changes of single expressions at random, as many in each room of `ROOMS`, and runs the room's tests on a copy
of the tree with one change at a time, until the first failure. Prints a line for each mutant: `killed` by which test,
`lives` or `absent`.

To compare two versions, `--mutants` names a file: the chosen mutants are written into it, or read from it if it exists. A
mutant is named by its room, function and statement, so that it is the same in a tree whose modules were moved; it is absent
where no function, or more than one, has this statement. `--tree` says which checkout is tested.

Of the tests only those run that execute the changed line, by a first run with coverage in the process of the tests. If none
does (the line runs in a process that a test starts), all tests of the room run.

Exit codes: 0 after a run, whatever lives; 1 if a tree cannot be used.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

# Each room: a folder of the package, and the folder with its tests.
ROOMS = {
    "core": "tests/core",
    "worker": "tests/worker",
    "taps/proxy": "tests/taps/proxy",
    "ledger": "tests/ledger",
    "audit": "tests/audit",
}
# Folders of tests that are left out: they start programs for minutes.
LEFT_OUT = (
    "tests/audit/world", "tests/taps/proxy/isolation", "tests/taps/proxy/native", "tests/worker/simulation",
    "tests/worker/watchdog",
)  # fmt: skip
PACKAGE = Path("pipeline/streamgauge")
# The tests of a mutant that hangs end after this; it counts as killed. In seconds.
LONGEST = 600

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}


@dataclass(frozen=True, slots=True)
class Key:
    """A mutant, by what both versions have: the room, the function, the statement's text, and the changed expression."""

    room: str
    function: str
    statement: str
    number: int
    changed: str


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a mutant's expression stands: a file of a tree, its lines from 1, and byte columns from 0."""

    path: Path
    first_line: int
    first_column: int
    last_line: int
    last_column: int


def _changed(node: ast.expr) -> ast.expr | None:
    """The expression that takes the place of `node`, if one of the kinds of change applies to it."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=comparators) if type(operator) in _COMPARED:
            return ast.Compare(left, [_COMPARED[type(operator)]()], comparators)
        case ast.BoolOp(op=ast.And(), values=values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            return ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=int() as value):
            return ast.Constant(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, orelse, body)
    return None


def _units(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The statements of a function, but of those with a body the condition alone; no nested functions."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.For(iter=iterated) | ast.AsyncFor(iter=iterated):
                yield iterated
            case ast.Return() | ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Assert():
                yield node
        for field in ("body", "orelse", "finalbody"):
            waiting += reversed(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            waiting += reversed(handler.body)
        for case in getattr(node, "cases", []):
            waiting += reversed(case.body)


def _in_functions(tree: Path, room: str) -> Iterator[tuple[Key, Spot]]:
    for path in sorted((tree / PACKAGE / room).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_bytes())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for unit in _units(function):
                statement = ast.unparse(unit)
                for number, node in enumerate(ast.walk(unit)):
                    if isinstance(node, ast.expr) and (changed := _changed(node)) is not None:
                        key = Key(room, function.name, statement, number, f"({ast.unparse(changed)})")
                        assert node.end_lineno is not None and node.end_col_offset is not None
                        yield (
                            key,
                            Spot(
                                path.relative_to(tree),
                                node.lineno,
                                node.col_offset,
                                node.end_lineno,
                                node.end_col_offset,
                            ),
                        )


def mutants(tree: Path, room: str) -> dict[Key, Spot]:
    """All mutants of a room that are named by one spot alone."""
    spots: defaultdict[Key, list[Spot]] = defaultdict(list)
    for key, spot in _in_functions(tree, room):
        spots[key].append(spot)
    return {key: alone[0] for key, alone in spots.items() if len(alone) == 1}


def chosen(tree: Path, count: int, seed: int) -> list[Key]:
    """`count` mutants of a tree, as many of each room, at most one in a statement, in the order of the rooms by turns."""
    of_rooms: list[list[Key]] = []
    for room in ROOMS:
        shuffled = sorted(mutants(tree, room), key=lambda key: (key.function, key.statement, key.number, key.changed))
        random.Random(f"{seed} {room}").shuffle(shuffled)
        of_statements = {(key.function, key.statement): key for key in reversed(shuffled)}
        of_rooms.append(sorted(of_statements.values(), key=shuffled.index))
    return [key for keys in zip(*of_rooms, strict=False) for key in keys][:count]


def mutated(source: bytes, spot: Spot, changed: str) -> bytes:
    """The source with `changed` where the spot's expression stands."""
    lines = source.splitlines(keepends=True)
    first, last = spot.first_line - 1, spot.last_line - 1
    before, after = lines[first][: spot.first_column], lines[last][spot.last_column :]
    return b"".join([*lines[:first], before, changed.encode(), after, *lines[last + 1 :]])


class Copy:
    """A copy of a tree in which tests run, with the copy's package before the installed one."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "__pycache__", ".*_cache")
        shutil.copytree(tree, folder, ignore=ignored, symlinks=True)
        # Tests start the programs of `.venv/bin` by this path.
        (folder / ".venv").symlink_to(tree.absolute() / ".venv")
        self._python = str(tree.absolute() / ".venv/bin/python")

    def run(self, *arguments: str, longest: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run pytest; the result has `returncode` 1 if a test failed.

        Raises subprocess.TimeoutExpired after `longest` seconds.
        """
        environment = os.environ | {
            "PYTHONPATH": str(self.folder / "pipeline"),
            "CI": "true",
            "HYPOTHESIS_PROFILE": "few",
            "STREAMGAUGE_FEW_EXAMPLES": "1",  # what earlier versions of the tests read
        }
        command = [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=longest, check=False
        )


def _tests(room: str) -> list[str]:
    """The arguments that let pytest run the room's tests, by two processes."""
    return ["-n", "2", ROOMS[room], *(f"--ignore={folder}" for folder in LEFT_OUT)]


@cache
def _report(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, check_same_thread=False)


def _failed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The ids of the tests that failed."""
    lines = (line.partition(" - ")[0].split(maxsplit=1) for line in ended.stdout.splitlines())
    return [words[1] for words in lines if len(words) == 2 and words[0] in {"FAILED", "ERROR"}]


def _cover(copy: Copy, room: str) -> tuple[Path, set[str]]:
    """Run the room's tests with coverage, each test a context; gives coverage's file of data, and the tests that failed."""
    data = copy.folder / f"build/{room.replace('/', '-')}.coverage"
    data.parent.mkdir(exist_ok=True)
    settings = data.with_suffix(".ini")
    settings.write_text(f"[run]\ndata_file = {data}\nsource = {copy.folder / PACKAGE / room}\n")
    options = ["--cov", "--cov-config", str(settings), "--cov-context=test", "--cov-report="]
    ended = copy.run(*_tests(room), *options)
    if ended.returncode not in (0, 1):
        sys.exit(f"{ROOMS[room]} cannot be run:\n{ended.stdout[-3000:]}{ended.stderr[-1000:]}")
    return data, set(_failed(ended))


def _tests_of(data: Path, failing: set[str], path: Path, line: int) -> list[str]:
    """The ids of the tests that executed the line, but those that fail without a mutant."""
    rows = _report(data).execute(
        "SELECT context.context, line_bits.numbits FROM line_bits JOIN file ON file.id = file_id"
        " JOIN context ON context.id = context_id WHERE file.path LIKE ?",
        (f"%{path}",),
    )
    ran = {
        context.partition("|")[0]
        for context, bits in rows
        if context and line // 8 < len(bits) and bits[line // 8] >> line % 8 & 1
    }
    return sorted(ran - failing)


def _arguments(copy: Copy, tests: Iterable[str], room: str) -> list[str]:
    """The tests to run, in a file: their ids may be longer than the system takes as arguments. Without any, the room's."""
    ids = "".join(f"{test}\n" for test in tests)
    if not ids:
        return _tests(room)
    named = copy.folder / "build/tests.txt"
    named.write_text(ids)
    return [f"@{named}"]


def _result(copy: Copy, key: Key, spot: Spot, tests: Iterable[str]) -> str:
    """`lives`, or `killed` and by what."""
    path = copy.folder / spot.path
    source = path.read_bytes()
    path.write_bytes(mutated(source, spot, key.changed))
    try:
        ended = copy.run("-x", "--timeout", "60", "-rfE", *_arguments(copy, tests, key.room), longest=LONGEST)
    except subprocess.TimeoutExpired:
        return f"killed: its tests took more than {LONGEST} s"
    finally:
        path.write_bytes(source)
    if not ended.returncode:
        return "lives"
    failed = _failed(ended)
    return f"killed: {failed[0] if failed else ended.stdout.strip().splitlines()[-1]}"


def run(tree: Path, keys: list[Key], jobs: int, results: Path | None) -> None:
    """Test each mutant, `jobs` at a time, and print the results."""
    spots = {key: spot for room in ROOMS for key, spot in mutants(tree, room).items()}
    with TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as threads:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(tree, Path(folder, str(number))))
        first = copies.get()
        data = {room: _cover(first, room) for room in ROOMS if any(key.room == room for key in keys)}
        copies.put(first)

        def test(key: Key) -> str:
            if (spot := spots.get(key)) is None:
                return "absent"
            copy = copies.get()
            try:
                return _result(copy, key, spot, _tests_of(*data[key.room], spot.path, spot.first_line))
            finally:
                copies.put(copy)

        counted: Counter[str] = Counter()
        for key, result in zip(keys, threads.map(test, keys), strict=True):
            counted[result.partition(":")[0]] += 1
            print(f"{key.room} {key.function}: {key.statement} -> {key.changed}: {result}", flush=True)
            if results is not None:
                with results.open("a") as file:
                    file.write(json.dumps(asdict(key) | {"result": result}) + "\n")
        print(", ".join(f"{count} {result}" for result, count in sorted(counted.items())))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Test seeded mutants of the code.")
    parser.add_argument("--count", type=int, default=100, help="how many mutants (100)")
    parser.add_argument("--seed", type=int, default=1, help="another seed chooses others (1)")
    parser.add_argument(
        "--mutants", type=Path, help="write the mutants into this file, or read them from it if it exists"
    )
    parser.add_argument(
        "--tree", type=Path, default=Path(), help="the checkout whose tests run, with its .venv (this one)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants are tested at a time (1)")
    parser.add_argument("--results", type=Path, help="append the results to this file, as JSON lines")
    options = parser.parse_args()
    tree = options.tree.absolute()
    if not (tree / ".venv/bin/python").exists():
        sys.exit(f"{tree} has no .venv: run `make .venv/.installed` in it")
    if options.mutants is not None and options.mutants.exists():
        keys = [Key(**json.loads(line)) for line in options.mutants.read_text().splitlines()]
    else:
        keys = chosen(tree, options.count, options.seed)
        if options.mutants is not None:
            options.mutants.write_text("".join(json.dumps(asdict(key)) + "\n" for key in keys))
    run(tree, keys, options.jobs, options.results)


if __name__ == "__main__":
    main()
