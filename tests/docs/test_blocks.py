"""Each code block of the documents has a language, and is run, read or parsed; or it has a reason why not."""

import ast
import json
import tomllib

import promql_parser
import yaml

from tests.docs.blocks import FILES, PAGES, ROOT, Block, agrees, blocks, problems, steps
from tests.each import each

BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(block: Block) -> str:
    return block.place


@each(BLOCKS, of)
def test_each_block_says_what_it_is_for(block: Block) -> None:
    assert list(problems(block)) == []


@each([block for block in BLOCKS if block.language == "json"], of)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@each([block for block in BLOCKS if block.language == "toml"], of)
def test_toml_is_toml(block: Block) -> None:
    tomllib.loads(block.text)


@each([block for block in BLOCKS if block.language == "yaml"], of)
def test_yaml_is_yaml(block: Block) -> None:
    assert list(yaml.safe_load_all(block.text))


@each([block for block in BLOCKS if block.language == "promql"], of)
def test_promql_is_promql(block: Block) -> None:
    for query in block.text.strip().split("\n\n"):
        promql_parser.parse(query)


@each([block for block in BLOCKS if block.language == "python"], of)
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text)


def test_a_file_is_read_by_a_command_below() -> None:
    unread = []
    for page in PAGES:
        listed = blocks(page)
        for at, block in enumerate(listed):
            if block.mark == "file" and not any(
                block.value.removesuffix(".py") in later.text for later in listed[at + 1 :] if later.is_run
            ):
                unread.append(block.place)
    assert unread == []


def test_there_are_many_blocks_and_most_are_run() -> None:
    commands = [block for block in BLOCKS if block.language in ("sh", "console", "python")]
    assert len(commands) >= 60
    assert sum(block.is_run for block in commands) >= 0.6 * len(commands)


PAGE = ROOT / "README.md"


def test_a_block_has_the_comment_before_it() -> None:
    text = "<!-- not run: it needs a GPU -->\n```sh\nvllm serve M\n```\n\n"
    text += "- one\n\n  <!-- run: exit 1 -->\n  ```sh\n  false\n  ```\n"
    first, second = blocks(PAGE, text)
    assert (first.language, first.mark, first.value, first.line) == ("sh", "not run", "it needs a GPU", 2)
    assert not first.is_run
    assert (second.text, second.mark, second.value) == ("false\n", "run", "exit 1")
    assert second.is_run


def test_a_comment_counts_for_the_next_block_only() -> None:
    text = "<!-- not run: it needs a GPU -->\n```sh\na\n```\n```sh\nb\n```\n"
    text += "<!-- run: background -->\nProse.\n\n```sh\nc\n```\n"
    assert [block.mark for block in blocks(PAGE, text)] == ["not run", "", ""]


def test_what_is_wrong_with_a_block_is_said() -> None:
    wrong = [
        "```\nx\n```\n",
        "```bash\nx\n```\n",
        "```toml\na = 1\n```\n",
        "```console\nstreamgauge\n```\n",
        "<!-- run: later -->\n```sh\nx\n```\n",
        "<!-- not run: no -->\n```sh\nx\n```\n",
        "<!-- not run: tests/no/such.py runs this -->\n```sh\nx\n```\n",
        "```text\n$ streamgauge up\n```\n",
    ]
    assert [len(list(problems(block))) for text in wrong for block in blocks(PAGE, text)] == [1] * len(wrong)
    assert list(problems(blocks(PAGE, "<!-- file: a.toml -->\n```toml\na = 1\n```\n")[0])) == []
    assert "toml" in FILES


def test_a_console_block_has_commands_and_what_they_print() -> None:
    [block] = blocks(PAGE, "```console\n$ a \\\n> b\none\n$ c\n```\n")
    assert steps(block) == [("a \\\nb", ["one"]), ("c", [])]


def test_outputs_agree_up_to_words_with_digits_and_left_out_lines() -> None:
    assert agrees(["at  10:20  three", "...", "end"], "at 11:59   three\nx\ny\n\nend\n")
    assert agrees(["one", "...", "end"], "one\nend\n")
    assert not agrees(["one", "end"], "one\nx\nend\n")
    assert not agrees(["outcome truncated"], "outcome completed\n")
    assert not agrees(["tokens 5"], "tokens -\n")
