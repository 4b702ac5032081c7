"""docker-compose.yml as data, and the command lines of our services."""

from pathlib import Path
from typing import Any

import yaml

from tests.deploy import commands
from tests.deploy.commands import Parsed, with_defaults

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "streamgauge:local"}
SIMULATED = {name: service for name, service in SERVICES.items() if service["image"] == "streamgauge-demo:local"}
# What the image sets.
IMAGE = {"STREAMGAUGE_DATA_DIR": "/data"}


def environment(name: str) -> dict[str, str]:
    """The environment of a service."""
    return {key: with_defaults(value) for key, value in SERVICES[name].get("environment", {}).items()}


def parsed(name: str) -> Parsed:
    """The command of one of our services, by our own parser and settings. Exits, or raises UsageFault, if it is wrong."""
    return commands.parsed(OURS[name]["command"], IMAGE | environment(name))


def volumes(name: str) -> dict[str, str]:
    """A service's mounts: path in the container -> what is mounted there."""
    return {mount.split(":")[1]: mount.split(":")[0] for mount in SERVICES[name].get("volumes", [])}
