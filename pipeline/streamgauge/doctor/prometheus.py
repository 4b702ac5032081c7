"""Prometheus: a target is up that shows streamgauge_build_info, and one of them is this installation's."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from streamgauge import __version__
from streamgauge.doctor.contract import Finding, Installation, Level, fail, in_thread, ok, warn
from streamgauge.runtime.redaction import redacted_text, redacted_value

_TIMEOUT_S = 8.0
# The largest answer that is read (bytes).
_MAX_BYTES = 16 * 1024 * 1024
_METRIC = "streamgauge_build_info"


class _QueryError(Exception):
    """Prometheus does not answer a query. The text is the end of a sentence."""


async def check_prometheus(installation: Installation) -> Sequence[Finding]:
    """Nothing without --prometheus; else one finding for the targets, and one if there are no rules."""
    return await in_thread(_findings, installation) if installation.prometheus else []


def _findings(installation: Installation) -> list[Finding]:
    targets = _of_targets(installation)
    return [targets] if targets.level is Level.FAIL else [targets, *_of_rules(installation.prometheus.rstrip("/"))]


def _of_rules(url: str) -> list[Finding]:
    """A warning if no alert rule uses a metric of ours."""
    try:
        groups = _get(url, "rules", type="alert")["groups"]
        has_rules = any("streamgauge_" in str(rule["query"]) for group in groups for rule in group["rules"])
    except (_QueryError, KeyError, TypeError):
        return []  # other servers with the same queries may have no rules
    if has_rules:
        return []
    cure = "`streamgauge rules generate` prints them, for the rule_files of Prometheus"
    return [warn("Prometheus has no alert rules of Streamgauge", cure)]


def _of_targets(installation: Installation) -> Finding:
    url, port = installation.prometheus.rstrip("/"), installation.settings.admin.port
    try:
        series = _get(url, "query", query=_METRIC)["result"]
        down = [
            target for target in _get(url, "targets", state="active")["activeTargets"] if target["health"] == "down"
        ]
    except _QueryError as error:
        return fail(
            f"Prometheus at {redacted_value(url)} {error}", "check the address, and that it is Prometheus's own"
        )
    except (KeyError, TypeError):
        return fail(
            f"{redacted_value(url)} does not answer as Prometheus does", "give the address of its web interface"
        )
    ours = [sample["metric"] for sample in series if str(sample["metric"].get("instance", "")).endswith(f":{port}")]
    for target in down:
        scraped = str(target.get("scrapeUrl", ""))
        if f":{port}/" in scraped and not ours:
            why = redacted_text(str(target.get("lastError", "")))
            return fail(f"Prometheus cannot scrape {redacted_text(scraped)}: {why}", _cure_of(why))
    if not series:
        cure = f"add HOST:{port} to the scrape_configs, as in dashboards/prometheus/prometheus.yml"
        return fail(f"Prometheus scrapes no target that shows {_METRIC}", cure)
    if not ours:
        cure = f"add HOST:{port} to the scrape_configs; start the process first, if it does not run yet"
        return warn(
            f"Prometheus scrapes {len(series)} Streamgauge processes, none of them at port {port} (--admin)", cure
        )
    versions = {str(labels.get("version", "")) for labels in ours}
    if versions != {__version__}:
        cure = "restart the processes of the other version, if this is no rolling update"
        return warn(
            f"processes at port {port} have version {', '.join(sorted(versions))}, this one is {__version__}", cure
        )
    names = ", ".join(sorted(f"{labels.get('job')} at {labels.get('instance')}" for labels in ours))
    return ok(f"Prometheus scrapes {names}")


def _cure_of(why: str) -> str:
    if "401" in why:
        return "give Prometheus the credentials of the admin port (authorization in the scrape_configs)"
    if "403" in why:
        return "allow the name by which Prometheus calls it: --admin-host NAME"
    if "refused" in why or "no route" in why or "deadline" in why or "timeout" in why:
        return (
            "start the process, or let --admin listen on an address that Prometheus reaches (default: this host only)"
        )
    return "correct the target in the scrape_configs"


def _get(url: str, path: str, **query: str) -> Any:
    """The data of an answer of the API. Raises _QueryError."""
    if not url.startswith(("http://", "https://")):
        raise _QueryError("is no address of HTTP")
    try:
        endpoint = f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(endpoint, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - the scheme was checked
            answered = json.loads(answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise _QueryError(f"answers with {error.code}") from None
    except urllib.error.URLError as error:
        raise _QueryError(f"cannot be reached ({redacted_text(str(error.reason))})") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _QueryError(f"gives no answer that can be read ({type(error).__name__})") from None
    return answered["data"] if isinstance(answered, dict) and answered.get("status") == "success" else None
