"""`streamgauge doctor [up|tap|worker]`: what would stop this installation from working, with the cures."""

import asyncio
import json
import logging
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from streamgauge.cli.admin_port import admin_access, with_worker_admin_port
from streamgauge.cli.extras import has_extra
from streamgauge.cli.kafka_options import brokers_of
from streamgauge.cli.parser import JSON, Arguments
from streamgauge.cli.supervisor import check_attributes, check_certificates, check_keys
from streamgauge.cli.tenants_file import read_tenants
from streamgauge.doctor.checks import run_checks
from streamgauge.doctor.cluster import Cluster
from streamgauge.doctor.contract import Finding, Installation, Level
from streamgauge.errors import DONE, FOUND, MissingExtra, StreamgaugeError, UsageFault
from streamgauge.kafka.topics import Job
from streamgauge.recorder.installation_key import installation_key
from streamgauge.runtime.listeners import Address
from streamgauge.runtime.redaction import redacted_text, redacted_value
from streamgauge.settings.declarations import Settings
from streamgauge.settings.types import parse_address
from streamgauge.taps.proxy.tls import upstream_context

_UP, _TAP, _WORKER = "up", "tap", "worker"
_MAX_TIMEOUT_S = 3600.0


def run(settings: Settings, args: Arguments) -> int:
    """Prints the findings: 1 if one is a failure."""
    if not 0 < args.check_timeout <= _MAX_TIMEOUT_S:
        raise UsageFault(f"--check-timeout must be more than 0 and at most {_MAX_TIMEOUT_S:g} seconds")
    logging.disable(logging.CRITICAL)  # libraries would log what the findings say
    command = args.command.partition(" ")[2] or _fitting(settings)
    if command == _WORKER:
        settings = with_worker_admin_port(settings)
    try:
        findings = asyncio.run(_found(command, settings, args))
    finally:
        logging.disable(logging.NOTSET)
    _say(command, findings, args.output)
    return FOUND if any(finding.level is Level.FAIL for _, finding in findings) else DONE


def _fitting(settings: Settings) -> str:
    """The command for which the settings are made."""
    if not settings.kafka:
        return _UP
    return _TAP if settings.upstream else _WORKER


async def _found(command: str, settings: Settings, args: Arguments) -> Sequence[tuple[str, Finding]]:
    return await run_checks(_installation(command, settings, args), args.check_timeout)


def _installation(command: str, settings: Settings, args: Arguments) -> Installation:
    # What the command does before it starts, in its order; `admin_access` is called once, since it takes a secret.
    attempts: list[Callable[[], object]] = [
        partial(read_tenants, settings.tenants),
        partial(admin_access, settings, lambda _: None),
    ]
    if command != _WORKER:
        attempts += [partial(check_keys, settings), partial(check_certificates, settings)]
    if command == _UP:
        attempts.append(partial(check_attributes, settings, names_them=bool(settings.upstream)))
    if not has_extra(command):
        attempts.append(partial(_raise, MissingExtra(f"`{command}`", command)))
    elif command != _TAP:
        attempts += _of_ledger(settings)
    for option, url in (("--through", args.through), ("--prometheus", args.prometheus)):
        _check_url(option, url)
    cluster = None
    if command != _UP:
        try:
            job = Job.WORKER if command == _WORKER else Job.TAP
            cluster = Cluster(brokers_of(settings), settings.topic_prefix, job)
        except StreamgaugeError as error:
            attempts.append(partial(_raise, error))
    return Installation(
        command,
        settings,
        installation_key,
        cluster,
        _upstream_tls(settings),
        attempts,
        args.through or "",
        args.prometheus or "",
        _address(args.serve),
    )


def _check_url(option: str, url: str | None) -> None:
    """Rejects what no library can take apart: a port that is no number, half an IPv6 address. Raises UsageFault."""
    try:
        _ = None if url is None else urlsplit(url).port
    except ValueError:
        raise UsageFault(f"{option} {redacted_value(url or '')} is no URL: write http://HOST[:PORT]") from None


def _address(address: str | None) -> Address | None:
    try:
        return None if address is None else parse_address(address)
    except ValueError as error:
        raise UsageFault(f"--serve: {error}") from None


def _of_ledger(settings: Settings) -> list[Callable[[], object]]:
    """A tap needs none of these modules."""
    from streamgauge.cli.stream_costs import prices_of
    from streamgauge.ledger.budgets import load_budgets

    budgets = settings.budgets
    return [partial(prices_of, settings), *([] if budgets is None else [partial(load_budgets, budgets)])]


def _raise(error: StreamgaugeError) -> None:
    raise error


def _upstream_tls(settings: Settings) -> ssl.SSLContext | None:
    """None if the files cannot be used: `check_certificates` says why."""
    try:
        return upstream_context(
            settings.upstream_ca,
            settings.upstream_certificate,
            settings.upstream_key,
            settings.upstream_key_password_file,
        )
    except ValueError:
        return None


def _say(command: str, findings: Sequence[tuple[str, Finding]], output: str) -> None:
    counts = {level: sum(finding.level is level for _, finding in findings) for level in Level}
    if output == JSON:
        rows = [
            {
                "check": name,
                "level": finding.level,
                "says": redacted_text(finding.says),
                "cure": redacted_text(finding.cure) or None,
            }
            for name, finding in findings
        ]
        sys.stdout.write(json.dumps({"command": command, "counts": counts, "findings": rows}) + "\n")
        return
    width = max(len(name) for name, _ in findings)
    for name, finding in findings:
        cure = f"; cure: {finding.cure}" if finding.cure else ""
        line = redacted_text(f"{finding.level:<4}  {name:<{width}}  {finding.says}{cure}")
        sys.stdout.write("".join(char if char.isprintable() else "?" for char in line) + "\n")
    sys.stdout.write(f"{command}: {', '.join(f'{count} {level}' for level, count in counts.items())}\n")
