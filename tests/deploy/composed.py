"""docker-compose.yml as data, and the command lines of our services."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from streamgauge.cli.parser import parse
from streamgauge.cli.settings_sources import load
from streamgauge.config import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


@dataclass(frozen=True)
class Parsed:
    """A service's command: its name, and the settings that it gives."""

    command: str
    settings: Settings


def parsed(name: str) -> Parsed:
    """The command of one of our services, by our own parser and settings. Exits, or raises UsageFault, if it is wrong."""
    args = parse(OURS[name]["command"])
    return Parsed(args.command, load(args.settings))


def volumes(name: str) -> dict[str, str]:
    """A service's mounts: path in the container -> what is mounted there."""
    return {mount.split(":")[1]: mount.split(":")[0] for mount in SERVICES[name].get("volumes", [])}
