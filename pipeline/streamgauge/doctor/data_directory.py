"""The data directory: its disk and modes, the key of digests, and the counters of responses."""

import hashlib
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamgauge.doctor.contract import Finding, Installation, fail, failure_of, in_thread, ok, warn
from streamgauge.errors import Unavailable
from streamgauge.runtime.data_directory import make_data_dir, warning_about
from streamgauge.runtime.ownership import READ, WRITE, mode_of, others_who_may
from streamgauge.settings.declarations import Settings
from streamgauge.spool.response_counters import LOST, seen_and_not_captured

# Files with captured data, records or a key (the key has a check of its own).
_FILES = ("spool.sqlite", "state.sqlite", "ledger.sqlite")
# What a trial writes (bytes): a page of the file system.
_TRIAL = b"\0" * 4096
_GIB = 1024**3


async def check_disk(installation: Installation) -> Sequence[Finding]:
    """One finding for each problem of the directory; else one for all."""
    return await in_thread(lambda: list(_of_disk(installation)))


def _of_disk(installation: Installation) -> Iterator[Finding]:
    settings = installation.settings
    path = settings.data_dir
    if not os.path.lexists(path):
        yield _creatable(path)
        return
    try:
        make_data_dir(path)  # it exists: this only checks its mode
        warning = warning_about(path)
        _write_trial(path)
    except Unavailable as error:
        yield failure_of(error)
        return
    except OSError as error:
        cure = "free space on its disk, or choose another directory with --data-dir, and check its owner and mode"
        yield fail(f"the data directory {path} cannot be written ({error.strerror or error})", cure)
        return
    findings = [*_modes(path), *([] if installation.command == "worker" else _space(path, settings))]
    if warning is not None:
        says, _, cure = warning.rpartition(": ")
        findings.append(warn(says, cure))
    yield from findings
    if not findings:
        yield ok(f"the data directory {path} can be written, and has {_gib(shutil.disk_usage(path).free)} free")


def _creatable(path: Path) -> Finding:
    above = next(parent for parent in path.parents if parent.exists())
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return ok(f"the data directory {path} does not exist yet, and can be created")
    return fail(
        f"the data directory {path} cannot be created in {above}", "create it, or choose another with --data-dir"
    )


def _write_trial(path: Path) -> None:
    """Write one page to a file that is removed at once. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=path, prefix=".doctor-") as trial:
        trial.write(_TRIAL)
        trial.flush()
        os.fsync(trial.fileno())


def _modes(path: Path) -> Iterator[Finding]:
    for file in (path / name for name in _FILES):
        if file.exists() and (others := others_who_may(status := file.stat(), READ | WRITE)):
            yield warn(
                f"{others} can read or change {file} (mode {mode_of(status)})", f"chmod 600 {shlex.quote(str(file))}"
            )


def _space(path: Path, settings: Settings) -> Iterator[Finding]:
    """The spool has its whole limit only if that is free on its disk now, besides what it has already."""
    spool = sum(file.stat().st_size for file in path.glob("spool.sqlite*"))
    wanted, free = settings.spool_bytes - spool, shutil.disk_usage(path).free
    if free < wanted:
        yield warn(
            f"{_gib(free)} are free in {path}, but the spool may take {_gib(wanted)} more while nothing can be delivered",
            "free space on its disk, or lower --spool-bytes",
        )


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / 1024**2:.1f} MiB"


# Characters of the fingerprint: enough to distinguish keys.
_SHOWN = 16


async def check_key(installation: Installation) -> Sequence[Finding]:
    """One finding, with the key's fingerprint."""
    return [await in_thread(_key, installation)]


def _key(installation: Installation) -> Finding:
    path = installation.settings.data_dir / "key"
    if not os.path.lexists(path):
        return ok(
            f"there is no key at {path} yet: the first start makes one; to have the credential_ids of another installation,"
            " copy its key file there before (mode 0600)"
        )
    try:
        key = installation.read_key(installation.settings.data_dir)
    except ValueError as error:
        return failure_of(error)
    except OSError as error:
        return fail(f"the key {path} cannot be read ({error.strerror or error})", "check its owner and mode")
    return ok(
        f"the key has the fingerprint {fingerprint(key)}: installations with the same fingerprint give an API key the same"
        " credential_id"
    )


def fingerprint(key: bytes) -> str:
    """A digest that distinguishes keys without revealing them: a key is 32 random bytes."""
    return hashlib.sha256(b"streamgauge key fingerprint\0" + key).hexdigest()[:_SHOWN]


async def check_coverage(installation: Installation) -> Sequence[Finding]:
    """One finding: a warning if responses that were to have a record have none."""
    counters = installation.settings.data_dir / "counters"
    seen, without = await in_thread(lambda: seen_and_not_captured(counters))
    if not seen:
        return [ok("no response has passed the tap of this data directory yet")]
    captured = seen - without.total()
    counts = ", ".join(f"{count} {reason.value}" for reason, count in without.most_common())
    says = f"{captured} of {seen} responses have a record ({captured / seen:.1%}){f'; without: {counts}' if counts else ''}"
    if LOST & set(without):
        return [
            warn(
                says,
                "see streamgauge_tap_responses_not_captured_total, and the reasons in docs/explanation/measuring.md",
            )
        ]
    return [ok(says)]
