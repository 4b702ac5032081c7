"""Makes the part of docs/reference/topics.md with commands that grant each job its least rights."""

from collections.abc import Iterator

from streamgauge.kafka.administrator import Kind, Operation
from streamgauge.kafka.topics import DEFAULT_PREFIX, RIGHTS, Job

# Who runs each job, in the example.
_USERS = {
    Job.TAP: "tap",
    Job.WORKER: "worker",
    Job.CREATE: "admin",
    Job.DESCRIBE: "admin",
    Job.REPLAY: "operator",
    Job.DEADLETTER: "operator",
    Job.RETRY: "operator",
}
_KAFKA_ACLS = "kafka-acls.sh --bootstrap-server broker:9093 --command-config admin.properties --add --allow-principal"


def acl_section() -> Iterator[str]:
    """The lines of the section: one command for each user and resource."""
    yield from (
        "## ACLs",
        "",
        f"The least rights as commands of Kafka, for the prefix {DEFAULT_PREFIX} and a user for each kind of job: taps,",
        "workers, the administrator of topics, and the operator who reads dead letters, sends them back and replays the log.",
        "",
        "<!-- not run: it needs Kafka's shell tools; tests/faults/test_broker_rights.py has a broker with these rights -->",
        "```sh",
    )
    granted: dict[tuple[str, str], dict[Operation, None]] = {}
    for job, rights in RIGHTS.items():
        for operation, kind, name in rights:
            what = f"--topic {DEFAULT_PREFIX}.{name}" if kind is Kind.TOPIC else f"--group {DEFAULT_PREFIX}"
            granted.setdefault((_USERS[job], what), {})[operation] = None
    for (user, what), operations in granted.items():
        flags = " ".join(f"--operation {_in_words(operation)}" for operation in operations)
        yield f"{_KAFKA_ACLS} User:{user} {flags} {what}"
    yield from ("```", "")


def _in_words(operation: Operation) -> str:
    """The name of an operation as Kafka's tool takes it, such as DescribeConfigs."""
    return operation.name.title().replace("_", "")
