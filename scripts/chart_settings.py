"""Writes the names of settings into the chart's values.schema.json, so that helm refuses a setting that does not exist.

python -m scripts.chart_settings
"""

import json
from pathlib import Path
from typing import Any

from streamgauge.settings.declarations import SETTINGS

SCHEMA = Path(__file__).parent.parent / "deploy" / "helm" / "streamgauge" / "values.schema.json"
COMMANDS = ("tap", "worker")
# Settings that the chart gives by values of its own.
OWN_VALUES = {"upstream", "listen", "data_dir", "drain_timeout", "tls_certificate", "tls_key", "ledger", "ledger_file"}
OWN_VALUES |= {"admin", "admin_open", "admin_token_file", "admin_tls_certificate", "admin_tls_key"}
OWN_VALUES |= {"kafka", "kafka_security", "kafka_mechanism", "kafka_username", "kafka_password_file", "topic_prefix"}
OWN_VALUES |= {"kafka_ca", "kafka_certificate", "kafka_key"}


def settings_of(command: str) -> list[str]:
    """The names of the settings that `tap.settings` or `worker.settings` may have, sorted."""
    return sorted(name for name, one in SETTINGS.items() if command in one.commands and name not in OWN_VALUES)


def schema_text() -> str:
    """The schema's text, with the names of the settings that exist."""
    schema: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for command in COMMANDS:
        settings = schema["properties"][command]["properties"]["settings"]
        settings["propertyNames"]["enum"] = settings_of(command)
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
