"""The chart in deploy/helm/streamgauge, rendered by helm for each file of values in its folder ci."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import ROOT, run

CHART = ROOT / "deploy" / "helm" / "streamgauge"
VALUES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
RELEASE, NAMESPACE = "llm", "gauges"

Manifest = Mapping[str, Any]


def values_file(name: str) -> Path:
    """The file of values with this name."""
    return CHART / "ci" / f"{name}-values.yaml"


@cache
def rendered(name: str) -> str:
    """What helm makes of the chart with these values. Skips the test if there is no helm."""
    done = run("helm", "template", RELEASE, CHART, "--namespace", NAMESPACE, "--values", values_file(name))
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def manifests(name: str) -> list[Manifest]:
    """The same as data."""
    return [one for one in yaml.safe_load_all(rendered(name)) if one]


def of_kind(name: str, kind: str) -> list[Manifest]:
    """The manifests of a kind."""
    return [one for one in manifests(name) if one["kind"] == kind]


@dataclass(frozen=True)
class Pod:
    """A pod that is rendered: its owner's kind and name, its labels, its own settings, and the owner's volumes."""

    owner: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    claims: frozenset[str]

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """All of its containers that run our image."""
        both = [*self.spec.get("initContainers", ()), *self.spec["containers"]]
        return [one for one in both if one["name"].startswith("streamgauge") or one["name"] == "topics"]


def pods(name: str) -> Iterator[Pod]:
    """Every pod of the release, and for the sidecar one that was patched."""
    for one in manifests(name):
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = one["spec"]["template"]
            claims = frozenset(claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ()))
            yield Pod(
                f"{one['kind']}/{one['metadata']['name']}", template["metadata"]["labels"], template["spec"], claims
            )
    if patch := sidecar_patch(name):
        template = patch["spec"]["template"]
        served = {"name": "vllm", "image": "vllm/vllm-openai:v0.11.0", "ports": [{"containerPort": 8000}]}
        spec = {**template["spec"], "containers": [served]}
        yield Pod("Deployment/vllm", {"app": "vllm", **template["metadata"]["labels"]}, spec, frozenset())


def sidecar_patch(name: str) -> Manifest | None:
    """The patch that adds the tap to a Deployment."""
    for one in of_kind(name, "ConfigMap"):
        if "patch.yaml" in one["data"]:
            patch: Manifest = yaml.safe_load(one["data"]["patch.yaml"])
            return patch
    return None


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a container that have a value of their own."""
    return {one["name"]: one["value"] for one in container.get("env", ()) if "value" in one}
