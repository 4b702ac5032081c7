"""The build hook of hatchling: what wheels and the sdist hold beside the sources.

A wheel gets the modules in C that can be built, uPlot, where npm can download it, and the dashboards, rules and schemas
that `streamgauge assets` writes. With STREAMGAUGE_PUMP=no it is a wheel without them, for every platform. The sdist gets
uPlot, so that a wheel can be built from it without npm. A build writes into a directory of its own; only an editable
installation writes into the source tree, since it runs from there.
"""

import os
import runpy
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Files and directories that are in a wheel as parts of the package: what `streamgauge assets` writes (`cli/assets.py`).
_ASSETS = ("dashboards/METRICS.md", "dashboards/grafana", "dashboards/prometheus", "schemas")
_UPLOT = "streamgauge/live/static/uplot"


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds files to the build. hatchling calls `initialize` before, and `finalize` after it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Makes the files. `version`: "editable" or "standard"."""
        self._directory = tempfile.TemporaryDirectory(prefix="streamgauge-build-")
        made = Path(self._directory.name)
        editable = version == "editable"
        files: dict[str, str] = build_data["force_include"]
        uplot = runpy.run_path(str(Path(self.root, "scripts", "fetch_uplot.py")))
        place = uplot["PLACE"] if editable or uplot["is_there"](uplot["PLACE"]) else made / "uplot"
        fault = uplot["fetch"](place)
        if fault is not None:
            self.app.display_warning(f"without uPlot, the built-in page has no charts: {fault}")
        elif not editable:
            files[str(place)] = _UPLOT if self.target_name == "wheel" else f"pipeline/{_UPLOT}"
        if self.target_name != "wheel":
            return
        if not editable:
            files |= {str(Path(self.root, name)): f"streamgauge/assets/{name}" for name in _ASSETS}
        if os.environ.get("STREAMGAUGE_PUMP") == "no":
            return
        native = runpy.run_path(str(Path(self.root, "scripts", "build_native.py")))
        for source in native["SOURCES"]:
            beside = native["module_of"](source)
            built = beside if editable else made / beside.name
            fault = native["build"](source, built)
            if fault is not None:
                self.app.display_warning(f"without {source.name}, which Python replaces, the proxy is slower: {fault}")
            elif not editable:
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
                files[str(built)] = str(beside.relative_to(Path(self.root, "pipeline")))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes the files that were made."""
        self._directory.cleanup()
