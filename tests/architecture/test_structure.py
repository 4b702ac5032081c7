"""The rules of the house. Default deny: a module that is not listed as an edge is pure, and has no foreign library."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "pipeline" / "streamgauge"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Library modules that touch the world. The core may import none of them; neither may a module that is no edge.
IMPURE = {
    "asyncio", "concurrent", "datetime", "fcntl", "io", "logging", "mmap", "multiprocessing", "os", "pathlib", "random",
    "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib", "uuid",
}  # fmt: skip
# Pure parts of these: types and arithmetic, no clock and no world.
PURE_NAMES = {("datetime", "UTC"), ("datetime", "datetime"), ("datetime", "timedelta"), ("uuid", "UUID")}

# The edges, longest prefix first: where the world is touched, with which foreign library. One each, but for its companions.
EDGES: dict[str, set[str]] = {
    "core/body.py": {"brotli", "zstandard"},
    "bundles.py": {"msgspec", "zstandard"},
    "records.py": {"pydantic"},
    "config.py": {"pydantic", "pydantic_settings", "platformdirs"},
    "admin.py": {"aiohttp"},
    "kafka.py": {"aiokafka"},
    "topics.py": {"aiokafka"},
    "broker/": {"aiokafka"},
    "worker/": {"faust", "aiokafka", "uvloop", "msgspec", "mode"},
    "taps/proxy": {"httptools", "uvloop", "msgspec"},
    "metrics/": {"prometheus_client", "msgspec"},
    "demo/": {"openai", "anthropic", "rich", "httpx", "msgspec"},
}
# Parts that never import each other; commands/ puts them together.
APART = ("taps", "kafka", "worker", "ledger", "view", "local", "demo", "admin")
FOREIGN = {"msgspec"}

# A file that is longer hides a second thing (STYLE: the models' median is about 150).
MAX_LINES = 400
# Legacy completions know no tools.
NOT_OWED = {"openai-completions": {"tools"}}
NAMED_AFTER_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "shared"}


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> list[tuple[str, str | None]]:
    """What a module imports when it runs, as (module, name); what stands under TYPE_CHECKING does not count."""
    tree = ast.parse(path.read_text())
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)}: relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def foreign_of(path: Path) -> set[str]:
    tops = {module.split(".")[0] for module, _ in imports(path)}
    return {top for top in tops if top not in sys.stdlib_module_names and top != "streamgauge"}


def allowed_foreign(path: Path) -> set[str]:
    fitting = [edge for edge in EDGES if place(path).startswith(edge)]
    return FOREIGN | (EDGES[max(fitting, key=len)] if fitting else set())


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_a_module_has_the_foreign_libraries_of_its_edge_and_no_other(path: Path) -> None:
    assert foreign_of(path) <= allowed_foreign(path)


@pytest.mark.parametrize("path", [path for path in SOURCES if place(path).startswith("core/")], ids=place)
def test_the_core_touches_nothing_of_the_world(path: Path) -> None:
    for module, name in imports(path):
        top = module.split(".")[0]
        assert top not in IMPURE or (module, name) in PURE_NAMES, f"imports {module}.{name}"
        assert top != "streamgauge" or module.startswith("streamgauge.core"), f"the core imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_parts_that_are_apart_do_not_import_each_other(path: Path) -> None:
    own = place(path).split("/")[0].removesuffix(".py")
    if own in ("commands", "cli"):
        return
    for module, name in imports(path):
        parts = module.split(".")
        if parts[0] != "streamgauge":
            continue
        other = parts[1] if len(parts) > 1 else name
        assert other not in APART or other == own or own not in APART, f"{own} imports {other}"


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert path.stem not in NAMED_AFTER_NOTHING
    assert ast.get_docstring(ast.parse(text)), "no docstring"


def test_every_dialect_is_in_the_one_list() -> None:
    from streamgauge.core.dialects import DIALECTS

    files = {path.stem for path in (PACKAGE / "core" / "dialects").glob("*.py")} - {"__init__", "contract"}
    assert files == {type(dialect).__module__.split(".")[-1] for dialect in DIALECTS}


def test_every_dialect_has_the_vectors_it_owes() -> None:
    from streamgauge.core.dialects import DIALECTS

    for dialect in DIALECTS:
        names = {path.stem for path in (ROOT / "tests" / "vectors" / dialect.name).rglob("*.sse")}
        for kind in {"happy", "tools", "error", "truncated", "usage-missing"} - NOT_OWED.get(dialect.name, set()):
            assert any(kind in name for name in names), f"{dialect.name} has no vector for {kind}"
