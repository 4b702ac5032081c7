"""The versions of what is stored: the spool, the state, and the messages of the topics. The ledger has its own check."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from streamgauge.core.assembly.state_codec import NewerStateError, decode_entry
from streamgauge.core.capture.bundles import UnreadableBundle, decode_bundle
from streamgauge.core.record import SCHEMA_VERSION, version_of
from streamgauge.doctor.contract import Finding, Installation, fail, in_thread, ok, warn
from streamgauge.kafka.log_reader import LogUnreadableError
from streamgauge.spool.file import SQLITE_FAULTS, is_known_layout

# The beginning of an entry of the state that shows its version (bytes).
_ENTRY_HEAD = 4
_BUSY_S = 5.0


async def check_formats(installation: Installation) -> Sequence[Finding]:
    """One finding for each file or topic whose version is not this program's; else one for all."""
    data_dir = installation.settings.data_dir
    findings = [] if installation.command == "worker" else await in_thread(lambda: list(_of_files(data_dir)))
    if installation.command == "worker":
        findings += await _of_topics(installation)
    where = "the topics" if installation.command == "worker" else f"the files in {data_dir}"
    return findings or [ok(f"what {where} hold has the formats of this version")]


def _of_files(data_dir: Path) -> Iterator[Finding]:
    spool, state = data_dir / "spool.sqlite", data_dir / "state.sqlite"
    with contextlib.suppress(OSError):
        if spool.exists() and spool.stat().st_size and not is_known_layout(spool):
            yield warn(
                f"{spool} is not a spool of this version: the next start keeps it as {spool.name}.damaged-N, and takes over"
                " the rows that can be read",
                "run the version that made it until its data is delivered, then change the version",
            )
    if state.exists():
        yield from _of_state(state)


def _of_state(file: Path) -> Iterator[Finding]:
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as database:
            heads = database.execute("SELECT DISTINCT substr(value, 1, ?) FROM state", (_ENTRY_HEAD,)).fetchall()
    except SQLITE_FAULTS as error:
        yield fail(f"{file} cannot be read as the state of open streams ({error})", "restore it, or move it away")
        return
    for (head,) in heads:
        if (why := _newer(bytes(head))) is not None:
            yield fail(f"{file}: {why}", "run the later version of Streamgauge")


def _newer(entry: bytes) -> str | None:
    """The reason why an entry of the state cannot be used; None if it can."""
    try:
        decode_entry(entry)
    except NewerStateError as error:
        return str(error).rpartition(": ")[0]
    return None


def _bundle(message: bytes) -> str | None:
    try:
        decode_bundle(message)
    except UnreadableBundle as error:
        return str(error) if error.error_class == "version" else None
    return None


def _record(message: bytes) -> str | None:
    version = version_of(message)
    if version is None or version == SCHEMA_VERSION:
        return None
    return f"a record of schema version {version}; this version knows {SCHEMA_VERSION}"


async def _of_topics(installation: Installation) -> list[Finding]:
    """The first and the last message of each partition: older formats are at the beginning, newer ones at the end."""
    cluster = installation.cluster
    if cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []  # the check of the broker reports it
    checked: list[tuple[str, Callable[[bytes], str | None]]] = [
        (cluster.topics.segments, _bundle),
        (cluster.topics.records, _record),
        (cluster.topics.state, _newer),
    ]
    findings = []
    for topic, problem_of in checked:
        if topic not in facts.topics:
            continue
        try:
            ends = await cluster.ends(topic, facts.topics[topic].partitions)
        except LogUnreadableError as error:
            findings.append(warn(f"{topic} cannot be read: {error}", "see the checks of broker and rights"))
            continue
        messages = [read.value for both in ends.values() for read in both if read.value is not None]
        problems = {problem for message in messages if (problem := problem_of(message)) is not None}
        findings += [
            fail(f"{topic} holds {problem}", "run the version of Streamgauge that wrote it")
            for problem in sorted(problems)
        ]
    return findings
