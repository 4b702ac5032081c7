"""The Helm chart: valid manifests, commands that parse, and defaults that are those of the settings."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import chart_settings

from streamgauge import __version__
from streamgauge.settings.declarations import DEFAULT_PARTITIONS, Settings
from tests.deploy import commands
from tests.deploy.chart import (
    CHART,
    DEFAULTS,
    RELEASE,
    VALUES,
    Pod,
    environment,
    manifests,
    of_kind,
    pods,
    values_file,
)
from tests.deploy.tools import run

# The oldest Kubernetes that Chart.yaml allows, and a newer one.
KUBERNETES = ("1.29", "1.34")
# Kinds of the Prometheus Operator and of KEDA, which Kubernetes' own schemas do not have.
OTHERS = ("ServiceMonitor", "PrometheusRule", "ScaledObject")
each_values = pytest.mark.parametrize("name", VALUES)


def test_the_values_cover_every_shape() -> None:
    given = [yaml.safe_load(values_file(name).read_text()) for name in VALUES]
    assert {one.get("shape", "gateway") for one in given} == {"gateway", "sidecar"}
    kinds = {one.get("worker", {}).get("autoscaling", {}).get("kind", "none") for one in given}
    assert kinds == {"none", "keda", "hpa"}


@each_values
def test_helm_finds_nothing_to_say(name: str) -> None:
    done = run("helm", "lint", "--strict", CHART, "--values", values_file(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@each_values
@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_accepts_every_manifest(name: str, version: str, tmp_path: Path) -> None:
    known = [one for one in manifests(name) if one["kind"] not in OTHERS]
    patched = [_pod_manifest(pod) for pod in pods(name) if pod.owner == "Deployment/vllm"]
    file = tmp_path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all([*known, *patched]))
    done = run("kubernetes-validate", "--strict", "--kubernetes-version", version, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(known) >= 4


def _pod_manifest(pod: Pod) -> Mapping[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "patched", "labels": pod.labels}, "spec": pod.spec}


@each_values
def test_names_are_unique_and_belong_to_the_release(name: str) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests(name)]
    assert len(names) == len(set(names))
    assert all(one.startswith(f"{RELEASE}-streamgauge") and len(one) <= 63 for _, one in names)


# --- commands and settings ------------------------------------------------------------------------------------------


@each_values
def test_every_command_parses_and_every_variable_exists(name: str) -> None:
    found = set()
    for pod in pods(name):
        for container in pod.containers:
            variables = [one["name"] for one in container.get("env", ())]
            assert len(variables) == len(set(variables)), container["name"]
            assert commands.unknown_variables(variables) == []
            if "args" in container:
                found.add(commands.parsed(container["args"], environment(container)).command)
    assert found >= {"tap", "worker"}


@each_values
def test_ports_and_probes_are_those_of_the_settings(name: str) -> None:
    for pod in pods(name):
        for container in pod.containers:
            if "ports" not in container:
                continue
            settings = commands.parsed(container["args"], environment(container)).settings
            ports = {one["name"]: one["containerPort"] for one in container["ports"]}
            wanted = {"admin": settings.admin.port}
            assert ports == (wanted | {"llm": settings.listen.port} if container["args"] == ["tap"] else wanted)
            assert settings.admin.host in ("0.0.0.0", "::")
            probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
            assert {one["port"] for one in probes.values()} == {"admin"}
            assert probes["startup"]["path"] == probes["liveness"]["path"] == "/health/live"
            assert probes["readiness"]["path"] == "/health/ready"
            assert {one["scheme"] for one in probes.values()} == {"HTTPS" if settings.admin_tls_certificate else "HTTP"}
            assert settings.admin_open == (settings.admin_token_file is None)


@each_values
def test_every_file_that_a_variable_names_is_mounted(name: str) -> None:
    for pod in pods(name):
        volumes = {one["name"]: one for one in pod.spec.get("volumes", ())}
        for container in pod.containers:
            mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
            assert set(mounts.values()) <= volumes.keys() | pod.claims, container["name"]
            values = [value for key, value in environment(container).items() if key.startswith("STREAMGAUGE_")]
            for path in [value for value in values if value.startswith("/")]:
                (mount,) = [one for one in mounts if path.startswith(f"{one}/")]
                items = volumes.get(mounts[mount], {}).get("secret", {}).get("items")
                assert not items or Path(path).name in {item["path"] for item in items}


@each_values
def test_no_secret_is_a_value(name: str) -> None:
    """Passwords and keys come from Secrets that others made; the chart makes none, and has none in a variable."""
    assert of_kind(name, "Secret") == []
    given = [value for pod in pods(name) for one in pod.containers for value in environment(one).values()]
    assert not any(re.search(r"://[^/@]*:[^/@]*@", value) for value in given)


@each_values
def test_every_pod_may_end_in_order(name: str) -> None:
    for pod in pods(name):
        for container in pod.containers:
            if container.get("args") not in (["tap"], ["worker"]) or pod.owner == "Deployment/vllm":
                continue
            settings = commands.parsed(container["args"], environment(container)).settings
            pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
            assert pause[0] == "sleep"
            beyond = 10 if container["args"] == ["tap"] else 45  # a stuck worker ends itself 45 s after its drain
            grace = pod.spec["terminationGracePeriodSeconds"]
            assert grace >= int(pause[1]) + settings.drain_timeout + beyond


def test_given_settings_reach_their_command() -> None:
    tap, worker = (
        commands.parsed(one["args"], environment(one)).settings
        for pod in pods("full")
        for one in pod.containers
        if one.get("args") in (["tap"], ["worker"])
    )
    assert (tap.workers, tap.spool_bytes, tap.tenant_header) == (2, 2 * 1024**3, "X-Team")
    assert [one.name for one in tap.attribute] == ["app", "region"]
    assert tap.strip_attributes
    assert tap.drain_timeout == 120
    assert [one.name for one in tap.upstream] == ["anthropic", "openai"]
    assert (tap.kafka, tap.topic_prefix) == ("kafka-0:9093,kafka-1:9093", "llm")
    assert (worker.metric_attribute, worker.ledger_age) == (("tenant",), 7_776_000)


def test_the_ledgers_url_is_a_file_of_a_secret() -> None:
    """Only the worker of a chart without it keeps records in its volume."""
    for name in VALUES:
        (pod,) = [one for one in pods(name) if one.owner.endswith("-worker")]
        (container,) = pod.containers
        given = yaml.safe_load(values_file(name).read_text()).get("ledger", {}).get("secret")
        variable = environment(container).get("STREAMGAUGE_LEDGER_FILE")
        assert variable == ("/run/secrets/ledger/url" if given else None)
        secrets = [one["secret"]["secretName"] for one in pod.spec["volumes"] if one["name"] == "ledger"]
        assert secrets == ([given["name"]] if given else [])


def test_defaults_are_those_of_the_settings() -> None:
    kafka = DEFAULTS["kafka"]
    assert kafka["security"] == Settings.kafka_security
    assert kafka["mechanism"] == Settings.kafka_mechanism
    assert kafka["topicPrefix"] == Settings.topic_prefix
    assert DEFAULTS["topics"]["partitions"] == DEFAULT_PARTITIONS
    assert DEFAULTS["worker"]["autoscaling"]["maxReplicas"] == DEFAULT_PARTITIONS
    for component in ("tap", "worker"):
        assert DEFAULTS[component]["drainSeconds"] == Settings.drain_timeout
        assert DEFAULTS[component]["settings"] == {}
    assert DEFAULTS["tap"]["service"]["port"] == Settings.listen.port
    assert _bytes(DEFAULTS["tap"]["persistence"]["size"]) >= 1.5 * Settings.spool_bytes
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def _bytes(size: str) -> int:
    return int(size.removesuffix("Gi")) * 1024**3


def test_what_is_not_given_has_the_default_of_the_settings() -> None:
    """A chart of the least values changes no setting but those that containers need."""
    changed = {
        "tap": {"upstream", "listen", "data_dir", "kafka", "topic_prefix", "kafka_security", "drain_timeout"},
        "worker": {"data_dir", "kafka", "topic_prefix", "kafka_security", "drain_timeout"},
    }
    needed = {"upstream", "listen", "admin", "admin_open", "data_dir", "kafka"}
    for pod in pods("gateway"):
        for container in pod.containers:
            if container.get("args") in (["tap"], ["worker"]):
                settings = commands.parsed(container["args"], environment(container)).settings
                given = set(settings.given)
                assert given == changed[container["args"][0]] | {"admin", "admin_open"}
                same = given - needed
                assert {one: getattr(settings, one) for one in same} == {one: getattr(Settings, one) for one in same}


def test_the_schema_has_the_settings_that_exist() -> None:
    assert chart_settings.SCHEMA.read_text() == chart_settings.schema_text(), "run: make generated"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("tap.settings.spool_byte=1", "spool_byte"),
        ("tap.settings.kafka=other:9092", "kafka"),
        ("tap.upstreams.-vllm=http://vllm:8000", "-vllm"),
        ("tap.upstreams.vllm=http://name:password@vllm:8000", "upstreams"),
        ("tap.replica=3", "replica"),
        ("topics.partitions=3", "partitions"),
        ("kafka.security=TLS", "security"),
        ("ledger.url=postgresql://gauge:secret@db/streamgauge", "url"),
        ("worker.replicas=2", "several workers need one ledger"),
        ("kafka.brokers=", "kafka.brokers is missing"),
        ("networkPolicy.enabled=false", "no NetworkPolicy protects the admin ports"),
        ("shape=sidecar", "no NetworkPolicy protects the admin ports"),
        ("tap.upstreams=null", "tap.upstreams is missing"),
    ],
)
def test_wrong_values_are_refused(wrong: str, said: str) -> None:
    done = run("helm", "template", RELEASE, CHART, "--values", values_file("gateway"), "--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr
