"""docker-compose.yml agrees with the command line, the settings, the dashboards and itself."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from streamgauge.kafka.topics import DEFAULT_PREFIX, Topics
from streamgauge.metrics.http_server import host_name
from streamgauge.metrics.rules import Links
from streamgauge.prices.price_file import load_prices
from streamgauge_demo.scenarios import UPSTREAMS
from tests.deploy.commands import unknown_variables
from tests.deploy.composed import COMPOSE, OURS, ROOT, SERVICES, SIMULATED, environment, parsed, volumes
from tests.deploy.tools import run

WORKERS = sorted(name for name in OURS if name.startswith("worker"))
SERVING = ["tap", *WORKERS]


def test_the_services_are_there() -> None:
    watching = {"prometheus", "alertmanager", "mailbox", "grafana"}
    assert set(OURS) == {"topics", "tap", "worker-1", "worker-2"}
    assert set(SIMULATED) == {"simulator", "traffic"}
    assert set(SERVICES) == {"kafka", "ledger", *watching, *OURS, *SIMULATED}


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_command_exists(name: str) -> None:
    assert parsed(name).command == name.partition("-")[0]
    assert unknown_variables(list(environment(name))) == []


def test_nothing_is_published_beyond_this_host() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) >= 3
    for port in ports:
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port
    assert not any(service.get("network_mode") or service.get("privileged") for service in SERVICES.values())


def test_published_ports_are_those_that_are_listened_on() -> None:
    (published,) = SERVICES["tap"]["ports"]
    assert int(published.split(":")[2]) == parsed("tap").settings.listen.port
    assert parsed("tap").settings.listen.host == "0.0.0.0"


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_brokers_addresses_agree(name: str) -> None:
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert listeners == f"PLAINTEXT://{parsed(name).settings.kafka}"


def test_all_use_the_same_topics_which_are_created_first() -> None:
    prefixes = {parsed(name).settings.topic_prefix for name in OURS}
    assert prefixes == {DEFAULT_PREFIX}
    topics = parsed("topics").settings
    assert topics.partitions is not None
    assert Topics(topics.topic_prefix).wanted(topics.partitions)
    assert len(WORKERS) <= topics.partitions
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    for worker in WORKERS:
        assert SERVICES[worker]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def test_the_tap_does_not_wait_for_the_broker() -> None:
    assert "depends_on" not in SERVICES["tap"]


def test_prometheus_scrapes_every_admin_port_by_a_resolvable_name() -> None:
    scrapes = yaml.safe_load((ROOT / "dashboards/prometheus/prometheus.yml").read_text())["scrape_configs"]
    targets = {target for scrape in scrapes for static in scrape["static_configs"] for target in static["targets"]}
    served = {f"{name}:{parsed(name).settings.admin.port}" for name in SERVING}
    assert targets == served
    for name in SERVING:
        settings = parsed(name).settings
        assert settings.admin.host == "0.0.0.0"
        assert {host_name(host) for host in settings.admin_host} == {name}


def test_simulated_traffic_goes_through_the_tap_to_the_simulator() -> None:
    simulator, traffic = SERVICES["simulator"], SERVICES["traffic"]
    for service in (simulator, traffic):
        assert service["entrypoint"][:2] == ["python", "-m"]
        assert importlib.util.find_spec(service["entrypoint"][2]) is not None
    assert simulator["build"]["args"] == {"EXTRAS": "demo"}
    assert "build" not in traffic, "one service builds the image of both"
    assert traffic["command"] == [f"http://tap:{parsed('tap').settings.listen.port}"]
    at = f"http://simulator:{simulator['command'][1].rpartition(':')[2]}"
    assert {upstream.name for upstream in parsed("tap").settings.upstream if upstream.url == at} == set(UPSTREAMS)


def test_simulated_streams_have_prices() -> None:
    for worker in WORKERS:
        prices = parsed(worker).settings.prices
        assert prices is not None
        mounted = volumes(worker)[str(prices)]
        assert {price.upstream for price in load_prices(ROOT / mounted).entries} < set(UPSTREAMS)


def test_links_of_alerts_lead_to_published_ports() -> None:
    """The rules are the generated ones, with the addresses that are their defaults."""
    links = Links()
    published = {port.rpartition(":")[0]: name for name in SERVICES for port in SERVICES[name].get("ports", [])}
    assert published[links.page.removeprefix("http://")] == "worker-1"
    assert published[links.dashboards.removeprefix("http://")] == "grafana"


def test_alerts_become_mails_in_the_local_mailbox() -> None:
    configuration = yaml.safe_load((ROOT / "dashboards/prometheus/prometheus.yml").read_text())
    (manager,) = configuration["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]
    mounted = volumes("alertmanager")["/etc/alertmanager/alertmanager.yml"]
    content = yaml.safe_load((ROOT / mounted).read_text())
    assert content["global"]["smtp_smarthost"] == "mailbox:1025"
    used = {content["route"]["receiver"], *(route["receiver"] for route in content["route"]["routes"])}
    by_name = {receiver["name"]: receiver for receiver in content["receivers"]}
    assert all("email_configs" in by_name[name] for name in used)
    kinds = {kind for receiver in content["receivers"] for kind in receiver if kind != "name"}
    assert kinds == {"email_configs", "pagerduty_configs", "slack_configs", "webhook_configs"}


def test_prometheus_reads_our_rules() -> None:
    mounts = volumes("prometheus")
    (rules,) = yaml.safe_load((ROOT / "dashboards/prometheus/prometheus.yml").read_text())["rule_files"]
    assert mounts[str(Path(rules).parent)] == "./dashboards/prometheus/rules"
    assert mounts["/etc/prometheus/prometheus.yml"] == "./dashboards/prometheus/prometheus.yml"


def test_grafana_is_provisioned_with_the_generated_dashboards() -> None:
    mounts = volumes("grafana")
    assert mounts["/etc/grafana/provisioning"] == "./dashboards/grafana/provisioning"
    assert mounts["/etc/grafana/dashboards"] == "./dashboards/grafana"
    provisioning = ROOT / "dashboards/grafana/provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards/streamgauge.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/etc/grafana/dashboards"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / home.replace("/etc/grafana/dashboards", "dashboards/grafana")).is_file()


def test_workers_are_two_members_with_one_ledger() -> None:
    assert len(WORKERS) == 2
    assert len({volumes(name)["/data"] for name in SERVING}) == len(SERVING), "each has its own data directory"
    for name in SERVING:
        assert str(parsed(name).settings.data_dir) == "/data"
    assert {parsed(name).settings.ledger_url for name in WORKERS} == {
        "postgresql://streamgauge@ledger/streamgauge?sslmode=disable"
    }


def test_the_ledger_is_the_database_that_the_workers_name() -> None:
    ledger = environment("ledger")
    assert ledger["POSTGRES_USER"] == "streamgauge"
    assert "POSTGRES_DB" not in ledger, "the database has the name of the user"
    assert "ports" not in SERVICES["ledger"]
    for worker in WORKERS:
        assert environment(worker)["PGPASSWORD"] == ledger["POSTGRES_PASSWORD"]
        assert SERVICES[worker]["depends_on"]["ledger"] == {"condition": "service_healthy"}


def test_every_volume_is_declared_and_every_mounted_path_exists() -> None:
    mounted = {source for name in SERVICES for source in volumes(name).values()}
    assert {source for source in mounted if not source.startswith("./")} == set(COMPOSE["volumes"])
    for source in mounted:
        assert not source.startswith("./") or (ROOT / source).exists(), source


def test_the_kill_comes_after_the_drain() -> None:
    for name in SERVING:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > parsed(name).settings.drain_timeout


def test_images_have_a_version() -> None:
    for name, service in SERVICES.items():
        image, colon, tag = service["image"].partition(":")
        assert colon, name
        assert tag != "latest", name
        assert image in ("streamgauge", "streamgauge-demo") or re.fullmatch(
            r"v?\d+\.\d+(\.\d+)?(@sha256:[0-9a-f]{64})?", tag
        ), name


def test_containers_have_no_rights_and_write_to_their_volumes_alone() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        # Kafka's image runs as a user of its own, whose start-up script writes into the image's folders.
        assert service["read_only"] is (name != "kafka"), name
        assert name == "kafka" or re.fullmatch(r"[1-9]\d*:\d+", service["user"]), name
        assert "/tmp" in service["tmpfs"], name


def test_services_that_others_wait_for_have_a_health_check() -> None:
    waited = {
        other
        for service in SERVICES.values()
        for other, how in service.get("depends_on", {}).items()
        if how["condition"] == "service_healthy"
    }
    assert waited == {"kafka", "ledger", "prometheus"}
    assert all(SERVICES[name]["healthcheck"]["test"][0] == "CMD" for name in waited)


def test_docker_compose_itself_accepts_the_file() -> None:
    done = run("docker-compose", "--file", ROOT / "docker-compose.yml", "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["services"].keys() == SERVICES.keys()
    for worker in WORKERS:
        assert read["services"][worker]["environment"] == environment(worker)
