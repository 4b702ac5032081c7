"""What the documents describe works: commands parse, paths exist, targets of make exist, settings are ours."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from streamgauge.cli.commands import parse
from streamgauge.cli.extras import MODULES
from streamgauge.errors import BUG, DONE, FOUND, INTERRUPTED, STUCK, UNAVAILABLE, USAGE
from streamgauge.settings.declarations import SETTINGS
from streamgauge.settings.types import ENV_PREFIX
from tests.each import each

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pipeline" / "streamgauge"
NAMES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
DOCUMENTS = [*(ROOT / name for name in NAMES), *sorted(ROOT.glob("docs/**/*.md"))]
# The first parts of paths that documents name.
BEGINNINGS = (ROOT, ROOT / "pipeline", PACKAGE)

# Variables of ours that are not settings: `cli/main.py` reads them, or taps in applications do.
OTHER_VARIABLES = {"STREAMGAUGE_CONFIG", "STREAMGAUGE_DEBUG", "STREAMGAUGE_TAP_NAME"}
OTHER_VARIABLES |= {"STREAMGAUGE_KAFKA_PASSWORD", "STREAMGAUGE_ADMIN_TOKEN"}  # secrets, and so no settings
OTHER_VARIABLES |= {"STREAMGAUGE_SCREENSHOTS"}  # of a test
OTHER_VARIABLES |= {"STREAMGAUGE_FAULTS"}  # of tests
OTHER_VARIABLES |= {"STREAMGAUGE_PUMP"}  # of a build
OTHER_VARIABLES |= {"STREAMGAUGE_SIMULATION_SCHEDULES", "STREAMGAUGE_SIMULATION_SEED"}  # of a test

# Characters of a line of code that a phone shows beside its margins (400 pixels, 13 pixels high letters).
PHONE_COLUMNS = 40

_FENCE = re.compile(r"^```[a-z]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_PLACED = re.compile(r"`(\w+)` in\s+`([\w/]+\.py)`")
_FILE = re.compile(r"[\w.<>*-]+\.(md|py|json|toml|yml|yaml|sse|lock)")
_MADE = re.compile(r"^<!-- file: (\S+) -->$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"<[^>]*>")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def quoted(text: str) -> Iterator[str]:
    """Each line of code blocks, and the text between backticks elsewhere."""
    for block in _FENCE.findall(text):
        yield from (line.strip() for line in block.splitlines())
    for found in _INLINE.findall(_FENCE.sub("", text)):
        yield found.strip()


def commands(text: str) -> Iterator[str]:
    """Command lines of ours, without redirections and pipes of the shell."""
    for line in quoted(text):
        ours = re.match(r"(?:\$ )?(?:\.venv/bin/)?(streamgauge(?: .*)?)$", line)
        if ours:
            yield re.split(r" [|>#] ?", ours[1])[0]


def names_a_path(word: str) -> bool:
    if word.startswith(("/", "http", ".venv", "-", "$")) or " " in word or "://" in word or "=" in word:
        return False
    return "/" in word or _FILE.fullmatch(word) is not None


def paths(text: str) -> Iterator[str]:
    made = {"build/site", *_MADE.findall(text)}  # by `make site`; by a block of the page
    for line in _INLINE.findall(_FENCE.sub("", text)):
        if not line.startswith("streamgauge "):  # a command's arguments are its user's own
            yield from (word for word in line.split() if names_a_path(word) and word not in made)


def exists(name: str) -> bool:
    pattern = _PLACEHOLDER.sub("*", name).rstrip("/")
    places = [place for beginning in BEGINNINGS for place in beginning.glob(pattern)]
    if "/" not in name:
        places += [
            place for top in ("pipeline", "dashboards", "schemas", "tests") for place in (ROOT / top).rglob(pattern)
        ]
    return any(place.is_dir() if name.endswith("/") else place.exists() for place in places)


def parses(command: str) -> bool:
    words = ["up" if word == "COMMAND" else word for word in shlex.split(command)[1:]]
    if not words:  # the program's name
        return True
    if words in (["--install-completion"], ["--show-completion"]):  # these write files, or print a script
        return True
    try:
        parse(words)
    except SystemExit as left:
        return left.code == 0  # --help, --version
    return True


of_each_document = each(DOCUMENTS, relative)


def test_the_documents_have_something_to_check() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(list(commands(readme))) >= 6
    assert {"make demo", "make test"} <= set(re.findall(r"make [a-z]+", readme))
    assert len(list(paths((ROOT / "CONTRIBUTING.md").read_text()))) >= 8


def test_the_readme_is_short_and_its_first_screen_fits_a_phone() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.split()) <= 1100
    first_screen = readme[: readme.index("![")]
    assert list(commands(first_screen)) == ["streamgauge demo --serve"]
    assert "make demo" in first_screen
    assert "docs/explanation/alternatives.md" in first_screen
    assert len(first_screen.split()) <= 125
    lines = [line for block in _FENCE.findall(first_screen) for line in block.splitlines()]
    assert [line for line in lines if len(line) > PHONE_COLUMNS] == []


def test_this_test_can_fail() -> None:
    assert list(commands("```\n.venv/bin/streamgauge up --x | jq .a   # why\n```\n`streamgauge.topic`")) == [
        "streamgauge up --x"
    ]
    assert not parses("streamgauge up --x")
    assert not parses("streamgauge tops")
    assert not exists("core/nothing.py")
    assert not exists("nothing/<name>.py")


def sources(path: Path) -> list[Path]:
    """The modules of a folder, or the module itself."""
    return sorted(path.glob("**/*.py")) if path.is_dir() else [path]


@of_each_document
def test_every_command_parses(path: Path) -> None:
    document = path.read_text()
    assert [command for command in commands(document) if not parses(command)] == []


@of_each_document
def test_every_path_exists(path: Path) -> None:
    document = path.read_text()
    assert [name for name in paths(document) if not exists(name)] == []


@of_each_document
def test_every_name_is_in_its_file(path: Path) -> None:
    """As in "`FLUSH_S` in `taps/proxy/outbox.py`"."""
    document = path.read_text()
    placed = [(name, file) for name, file in _PLACED.findall(document) if (PACKAGE / file).is_file()]
    assert [name for name, file in placed if not re.search(rf"\b{name}\b", (PACKAGE / file).read_text())] == []


def test_the_page_of_the_architecture_places_the_clocks() -> None:
    assert len(_PLACED.findall((ROOT / "docs" / "architecture.md").read_text())) >= 8


def test_each_step_of_a_read_names_the_functions_that_it_enters_by() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in re.findall(r"^\| \d+ \|.*$", page, re.MULTILINE)]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= 20
    missing = []
    for _, modules, functions, _ in rows:
        files = [file for name in _INLINE.findall(modules) for file in sources(PACKAGE / name)]
        for function in _INLINE.findall(functions):
            *owner, name = function.split(".")
            wanted = [rf"def {name}\b", *(rf"class {one}\b" for one in owner)]
            if not any(all(re.search(one, file.read_text()) for one in wanted) for file in files):
                missing.append(function)
    assert missing == []


@of_each_document
def test_every_link_leads_somewhere(path: Path) -> None:
    links = [link for link in _LINK.findall(path.read_text()) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


@of_each_document
def test_every_target_of_make_is_there(path: Path) -> None:
    document = path.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {line.split()[1] for line in quoted(document) if re.match(r"make [a-z-]+", line)}
    assert named <= targets


@of_each_document
def test_every_variable_is_a_setting(path: Path) -> None:
    document = path.read_text()
    ours = {setting.variable for setting in SETTINGS.values()} | OTHER_VARIABLES
    assert set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z]", document)) <= ours


def test_the_page_of_commands_has_every_exit_code() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    table = page.partition("| code | meaning |")[2].partition("\n\n")[0]
    known = [DONE, FOUND, USAGE, UNAVAILABLE, BUG, STUCK, INTERRUPTED]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == known


def test_the_makefile_runs_what_is_there() -> None:
    text = (ROOT / "Makefile").read_text()
    assert [script for script in re.findall(r"\./(scripts/\S+)", text) if not (ROOT / script).is_file()] == []
    modules = re.findall(r"-m (streamgauge[\w.]*)", text)
    assert modules
    assert [name for name in modules if not (PACKAGE.parent / f"{name.replace('.', '/')}.py").is_file()] == []


PACKAGES = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


@each(PACKAGES, relative)
def test_the_map_in_a_docstring_names_modules_of_its_package(package: Path) -> None:
    """A map is lines such as "client.py     buffers messages; loop_client.py: on an event loop"."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    named = set(re.findall(r"(?<![\w./])[a-z_0-9]+\.py\b", docstring))
    named |= set(re.findall(r"^([a-z_0-9]+/) ", docstring, re.MULTILINE))
    assert [name for name in named if not (package / name).exists() and not list(package.glob(f"*/{name}"))] == []


@each(PACKAGES, relative)
def test_the_map_of_a_package_is_complete(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {path.name for path in package.glob("*.py") if path.name[:2] != "__"}
    packages = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert sorted(name for name in modules | packages if not re.search(rf"(?<!\w){re.escape(name)}", docstring)) == []


_INSTALLED = re.compile(r"PATH_TO_CLONE\[([\w,]+)\]")


def lacking(text: str) -> set[str]:
    """The commands (first words) of a page whose extra the page's own installation does not bring."""
    extras = {extra for found in _INSTALLED.findall(text) for extra in found.split(",")}
    brought = {module for extra in extras for module in MODULES.get(extra, ())}
    named = {command.split()[1] for command in commands(text) if len(command.split()) > 1}
    return {command for command in named if extras and not set(MODULES.get(command, ())) <= brought}


@of_each_document
def test_what_a_page_installs_brings_the_extra_of_each_of_its_commands(path: Path) -> None:
    assert lacking(path.read_text()) == set()


def test_a_command_that_an_installation_lacks_is_found() -> None:
    installs = "```sh\npip install 'PATH_TO_CLONE[worker,rules]'\nstreamgauge ledger query\nstreamgauge top\n```\n"
    assert lacking(installs) == {"top"}
    assert lacking(installs.replace("rules]", "rules,top]")) == set()
    assert lacking("`streamgauge top`") == set()  # it installs nothing
