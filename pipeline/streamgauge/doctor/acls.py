"""The rights of this client, as the brokers report them. Nothing is read, written or created to test them."""

from collections.abc import Sequence

from streamgauge.doctor.findings import Finding, fail, ok
from streamgauge.doctor.installation import Installation
from streamgauge.kafka.administrator import Right
from streamgauge.kafka.topics import missing_rights


async def find(installation: Installation) -> Sequence[Finding]:
    """One failure for each missing right; else one finding for all."""
    cluster = installation.cluster
    if cluster is None or (facts := await cluster.facts_if_known()) is None:
        return []  # the check of the broker says why
    rights = cluster.topics.rights(cluster.job)
    missing = missing_rights(rights, facts.topics, facts.denied, facts.group)
    login = cluster.brokers.login
    if missing:
        principal = f"User:{login.username}" if login else "PRINCIPAL"
        return [
            fail(f"the broker denies {right}", _cure(cluster.brokers.bootstrap, principal, right)) for right in missing
        ]
    who = f"the user {login.username}" if login else "this client"
    return [ok(f"{who} has the rights of `{cluster.job}`: {', '.join(map(str, rights))}")]


def _cure(bootstrap: str, principal: str, right: Right) -> str:
    return (
        f"kafka-acls --bootstrap-server {bootstrap} --add --allow-principal {principal}"
        f" --operation {right.operation.acl_name} --{right.kind} {right.name}"
    )
