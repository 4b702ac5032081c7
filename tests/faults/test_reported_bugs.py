"""A bug in each of a tap's processes: traffic continues, and the log has the frames and nothing that was relayed."""

from pathlib import Path

import pytest

from tests.integration.provider import BEGIN, REST, provider
from tests.running import Running, start_up, wait_for

SECRET = "sk-0123456789"

# Python imports `sitecustomize` when it starts. So each process of the tap has a bug in one function, whose error
# quotes relayed bytes, as a parser's does.
SITE = """
import importlib.abc, importlib.util, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            def broken(*_, **__):
                raise ValueError("invalid: {secret}")
            setattr(getattr(module, {kind!r}), {name!r}, broken)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""

BUGS = {
    "recorder": ("streamgauge.recorder.response", "Response", "read_all", "the recorder"),
    "relay": ("streamgauge.recorder.loop_client", "LoopClient", "put", "the capture of an exchange"),
    "assembler": ("streamgauge.core.assembly.assembler", "Assembler", "apply", "the assembler"),
    "upstream": ("streamgauge.taps.proxy.upstream", "Connector", "_connect", "the connection to an upstream"),
}


def ask(tap: Running) -> bytes:
    with tap.post(headers={"authorization": f"Bearer {SECRET}"}) as answer:
        return answer.read()


@pytest.mark.parametrize("bug", BUGS)
def test_f3_a_bug_is_logged_once_with_its_frames_and_traffic_goes_on(tmp_path: Path, bug: str) -> None:
    module, kind, name, where = BUGS[bug]
    (tmp_path / "site").mkdir()
    site = SITE.format(module=module, kind=kind, name=name, secret=SECRET)
    (tmp_path / "site" / "sitecustomize.py").write_text(site)
    environment = {"PYTHONPATH": str(tmp_path / "site")}
    with provider() as small, start_up({"small": small.url}, tmp_path / "data", environment=environment) as up:
        for _ in range(3):
            answer = ask(up)
            assert b"upstream_unreachable" in answer if bug == "upstream" else answer == BEGIN + REST
        sentence = f"internal error in {where}: ValueError\n"
        wait_for(lambda: sentence in up.log, "a report of the bug")
        assert up.stop() == 0
        assert up.log.count(sentence) == 1
        frames = up.log.partition(sentence)[2].splitlines()
        assert any(frame.startswith("  ") and frame.endswith(" broken") for frame in frames), up.log
        assert SECRET not in up.log
