"""The Helm chart: what its containers may do, and that its manifests belong together."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from streamgauge.kafka.topics import Topics
from streamgauge.metrics.rule_files import prometheus_rules
from streamgauge.metrics.rules import Links
from streamgauge.settings.declarations import DEFAULT_PARTITIONS
from tests.deploy.chart import CHART, DEFAULTS, NAMESPACE, RELEASE, VALUES, of_kind, pods, sidecar_patch, values_file
from tests.deploy.tools import ROOT, run

each_values = pytest.mark.parametrize("name", VALUES)


@each_values
def test_every_container_is_restricted(name: str) -> None:
    """The profile `restricted` of Kubernetes' Pod Security Standards, and a root file system that cannot be written."""
    for pod in pods(name):
        if pod.owner != "Deployment/vllm":
            assert pod.spec["automountServiceAccountToken"] is False
            assert pod.spec["enableServiceLinks"] is False
            assert pod.spec["securityContext"]["runAsNonRoot"] is True
        for container in pod.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsGroup": 10001,
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
        assert not any("hostPath" in one for one in pod.spec.get("volumes", ()))


def test_the_user_is_that_of_the_image() -> None:
    assert "\nUSER 10001:10001\n" in (ROOT / "deploy" / "Dockerfile").read_text()


@each_values
def test_the_files_of_secrets_are_readable_for_the_user_alone(name: str) -> None:
    for pod in pods(name):
        modes = {one["secret"]["defaultMode"] for one in pod.spec.get("volumes", ()) if "secret" in one}
        # A pod with the sidecar belongs to others, whose fsGroup is not ours.
        assert modes <= ({0o444} if pod.owner == "Deployment/vllm" else {0o440})
        assert pod.owner == "Deployment/vllm" or pod.spec["securityContext"]["fsGroup"] == 10001


def test_only_prometheus_reaches_admin_ports() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind("full", "NetworkPolicy")}
    assert policies.keys() == {f"{RELEASE}-streamgauge-{component}" for component in ("tap", "worker")}
    for policy in policies.values():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        (admin,) = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] == "admin"]
        assert admin["from"] == DEFAULTS["networkPolicy"]["adminFrom"]
        assert [port["port"] for port in policy["egress"][0]["ports"]] == [53, 53]
    (llm,) = [rule for rule in policies[f"{RELEASE}-streamgauge-tap"]["ingress"] if rule["ports"][0]["port"] == "llm"]
    assert llm["from"] == [{"podSelector": {"matchLabels": {"llm": "true"}}}]
    assert [one["spec"]["policyTypes"] for one in of_kind("gateway", "NetworkPolicy")] == [["Ingress"]] * 2


# --- what belongs together ------------------------------------------------------------------------------------------


@each_values
def test_selectors_select_their_pods_alone(name: str) -> None:
    everything = list(pods(name))
    selecting = {
        **{f"Service/{one['metadata']['name']}": one["spec"]["selector"] for one in of_kind(name, "Service")},
        **{
            f"{kind}/{one['metadata']['name']}": one["spec"][member]["matchLabels"]
            for kind, member in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"))
            for one in of_kind(name, kind)
        },
    }
    for selector in selecting.values():
        selected = {pod.owner for pod in everything if selector.items() <= pod.labels.items()}
        assert len(selected) == 1, selector
    of_admin = [of for of in selecting if of.startswith("Service/")]
    assert len(of_admin) == 2 + (name != "sidecar")


@each_values
def test_services_point_at_ports_that_exist(name: str) -> None:
    for service in of_kind(name, "Service"):
        selector = service["spec"]["selector"].items()
        (pod,) = [pod for pod in pods(name) if selector <= pod.labels.items()]
        named = {port["name"] for container in pod.containers for port in container.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
        exposed = service["spec"].get("type", "ClusterIP") != "ClusterIP"
        assert not (exposed and "admin" in {port["targetPort"] for port in service["spec"]["ports"]})


@pytest.mark.parametrize("name", ["full", "sidecar"])
def test_prometheus_scrapes_the_admin_ports(name: str) -> None:
    (monitor,) = of_kind(name, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    scraped = [one for one in of_kind(name, "Service") if wanted <= one["metadata"]["labels"].items()]
    assert len(scraped) == 2
    (endpoint,) = monitor["spec"]["endpoints"]
    for service in scraped:
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert service["spec"]["clusterIP"] == "None"
    assert endpoint["path"] == "/metrics"
    given = yaml.safe_load(values_file(name).read_text())["admin"]
    assert endpoint["authorization"]["credentials"]["name"] == given["tokenSecret"]["name"]
    assert endpoint.get("scheme", "http") == ("https" if "tlsSecret" in given else "http")
    assert endpoint.get("tlsConfig", {}).get("serverName") == given.get("serverName")


def test_rules_and_dashboards_are_the_generated_ones() -> None:
    (rules,) = of_kind("full", "PrometheusRule")
    links = Links("https://gauge.example.org", "https://grafana.example.org")
    assert rules["spec"] == yaml.safe_load(prometheus_rules(links=links))
    assert "127.0.0.1" not in json.dumps(rules["spec"])
    found = {
        file: text
        for one in of_kind("full", "ConfigMap")
        if one["metadata"]["labels"].get("grafana_dashboard") == "1"
        for file, text in one["data"].items()
    }
    files = {f"streamgauge-{path.name}": path for path in (ROOT / "dashboards/grafana").glob("*.json")}
    assert found.keys() == files.keys()
    for file, text in found.items():
        assert json.loads(text) == json.loads(files[file].read_text())
        assert len(text) < 2**20, "the limit of a ConfigMap"


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    (rules,) = of_kind("full", "PrometheusRule")
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(rules["spec"]))
    done = run("promtool", "check", "rules", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["full", "persistent"])
def test_workers_are_scaled_by_lag(name: str) -> None:
    kind, least, most = {
        "full": ("ScaledObject", "minReplicaCount", "maxReplicaCount"),
        "persistent": ("HorizontalPodAutoscaler", "minReplicas", "maxReplicas"),
    }[name]
    (scaler,) = of_kind(name, kind)
    (workers,) = [one for one in of_kind(name, "StatefulSet") if one["metadata"]["name"].endswith("worker")]
    assert "replicas" not in workers["spec"], "helm would set back what the scaler chose"
    assert scaler["spec"]["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": workers["metadata"]["name"],
    }
    values = yaml.safe_load(values_file(name).read_text())
    partitions = values.get("topics", {}).get("partitions", DEFAULT_PARTITIONS)
    assert scaler["spec"][least] <= scaler["spec"][most] <= partitions


def test_keda_reads_the_lag_of_the_workers_group() -> None:
    (scaler,) = of_kind("full", "ScaledObject")
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger == {
        "type": "kafka",
        "authenticationRef": {"name": "kafka-login"},
        "metadata": {
            "bootstrapServers": "kafka-0:9093,kafka-1:9093",
            "consumerGroup": "llm",
            "topic": Topics("llm").segments,
            "lagThreshold": "1000000",
            "offsetResetPolicy": "earliest",
            "allowIdleConsumers": "false",
        },
    }


def test_the_hpa_reads_a_metric_that_workers_have() -> None:
    (scaler,) = of_kind("persistent", "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    assert f"| `{name}` |" in (ROOT / "dashboards" / "METRICS.md").read_text()


def test_taps_are_replaced_without_a_gap() -> None:
    (taps,) = of_kind("gateway", "Deployment")
    assert taps["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert taps["spec"]["replicas"] >= 2
    (pod,) = [pod for pod in pods("gateway") if pod.owner.startswith("Deployment/")]
    spread = pod.spec["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    for one in spread:
        assert one["labelSelector"]["matchLabels"].items() <= pod.labels.items()


def test_a_sidecar_is_a_native_one_and_changes_nothing_else() -> None:
    patch = sidecar_patch("sidecar")
    assert patch is not None
    key, tap = patch["spec"]["template"]["spec"]["initContainers"]
    assert tap["restartPolicy"] == "Always"
    assert "restartPolicy" not in key
    assert patch["spec"].keys() == {"template"}
    assert patch["spec"]["template"]["spec"].keys() == {"initContainers", "volumes"}
    assert patch["spec"]["template"]["metadata"] == {"labels": {"streamgauge.io/tap": RELEASE}}
    assert of_kind("sidecar", "Deployment") == []


def test_topics_are_made_before_workers_start() -> None:
    (job,) = of_kind("gateway", "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert of_kind("persistent", "Job") == []


def test_the_values_in_the_guide_are_valid(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "deployment.md").read_text()
    found = re.search(r"^```yaml\n(image: .*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert found
    file = tmp_path / "values.yaml"
    file.write_text(found[1])
    assert run("helm", "lint", "--strict", CHART, "--values", file).returncode == 0
    assert f"helm install {RELEASE} deploy/helm/streamgauge --namespace {NAMESPACE} " in guide
    (service,) = [one for one in of_kind("gateway", "Service") if one["metadata"]["name"].endswith("-tap")]
    assert f"`http://{service['metadata']['name']}.{NAMESPACE}:{service['spec']['ports'][0]['port']}/vllm/v1`" in guide


NOTES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: the-notes}
data: {text: {{ tpl (.Files.Get "NOTES.txt") . | toJson }}}
"""


def test_the_notes_name_the_scheme_and_the_token_of_the_page(tmp_path: Path) -> None:
    """helm prints them after an installation alone, so a copy of the chart has them in a manifest."""
    chart = tmp_path / "streamgauge"
    shutil.copytree(CHART, chart)
    shutil.copy(CHART / "templates" / "NOTES.txt", chart)
    (chart / "templates" / "notes.yaml").write_text(NOTES)
    texts = {}
    for name in ("full", "gateway"):
        done = run("helm", "template", RELEASE, chart, "--namespace", NAMESPACE, "--values", values_file(name))
        assert done.returncode == 0, done.stderr
        found = [one for one in yaml.safe_load_all(done.stdout) if one and one["metadata"]["name"] == "the-notes"]
        texts[name] = found[0]["data"]["text"]
    assert "then http://127.0.0.1:9464/" in texts["gateway"]
    assert "kubectl get secret" not in texts["gateway"]
    assert "then https://127.0.0.1:9464/\nIts certificate is for streamgauge.internal" in texts["full"]
    secret = f"kubectl get secret admin-token -n {NAMESPACE} -o jsonpath='{{.data.token}}' | base64 -d"
    assert secret in texts["full"]
