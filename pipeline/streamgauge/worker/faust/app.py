"""The Faust app: two agents and a table."""

from collections.abc import Callable
from typing import Any

import faust
from faust.auth import Credentials, SASLCredentials, SSLCredentials
from faust.types import TopicT

from streamgauge.kafka.aiokafka_header_patch import forgive_header_names
from streamgauge.kafka.security import Brokers
from streamgauge.worker.faust.recovery import Tables
from streamgauge.worker.faust.store import StateTable
from streamgauge.worker.faust.transport import transport_of
from streamgauge.worker.settings import WorkerSettings

# Heartbeats of one session. By a heartbeat's answer a member learns that another one has left: this is how long that takes.
_BEATS = 10
# How long a consumer may fetch nothing until aiokafka takes it out of the group (seconds): for ever. A worker that has no
# partition fetches nothing, and one that was taken out so never joins again. Whether work is done the watchdog knows better.
_IDLE_S = 366 * 24 * 3600.0
# A broker that is slow, not dead, gets this (seconds): more than the session, as Faust demands.
_REQUEST_TIMEOUT_S = 30.0
# How often the consumer asks for the metadata of its topics (milliseconds). A leader of the group that does not know a topic
# assigns none of its partitions, and aiokafka asks again only after this time or when a connection breaks.
_METADATA_AGE_MS = 10_000
# Messages between Faust's fetcher and an agent, which hands them on at once: bundles are big.
_BUFFER = 64

Receive = Callable[[Any], None]


def create_app(
    settings: WorkerSettings, segments: Receive, records: Receive | None, instance_id: str | None = None
) -> faust.App:
    """The app; its table is `app.tables["state"]`. `segments` and `records` get each message of their topic.

    `records` None: the records topic is not read. `instance_id`: a static member of the group, None for a dynamic one.
    """
    forgive_header_names()
    app = faust.App(
        settings.prefix,
        broker=";".join(f"kafka://{address.strip()}" for address in settings.brokers.bootstrap.split(",")),
        broker_credentials=_credentials(settings.brokers),
        store="memory://",
        datadir=str(settings.data_dir / "faust"),
        autodiscover=False,
        web_enabled=False,
        consumer_group_instance_id=instance_id,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=_METADATA_AGE_MS,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / _BEATS,
        broker_max_poll_interval=_IDLE_S,
        broker_request_timeout=_REQUEST_TIMEOUT_S,
        stream_buffer_maxsize=_BUFFER,
        # The default waits at shutdown for messages that are held until their checkpoint.
        stream_wait_empty=False,
        topic_allow_declare=False,  # `streamgauge topics create` makes them, with the configuration that they need
        topic_disable_leader=True,
        table_standby_replicas=0,
        TableManager=Tables,
    )
    app.transport = transport_of(app, settings.brokers)
    app.tables.add(
        StateTable(
            app,
            name="state",
            changelog_topic=_topic(app, settings.topics.state),
            key_type=bytes,
            value_type=bytes,
            partitions=None,
        )
    )

    @app.agent(_topic(app, settings.topics.segments), name="segments")
    async def read_segments(stream: Any) -> None:
        async for event in stream.noack().events():
            segments(event.message)

    if records is not None:
        receive = records

        @app.agent(_topic(app, settings.topics.records), name="records")
        async def read_records(stream: Any) -> None:
            async for event in stream.noack().events():
                receive(event.message)

    return app


def _credentials(brokers: Brokers) -> Credentials | None:
    """How brokers are met, in Faust's words, which hands it on to aiokafka."""
    if brokers.login is None:
        return None if brokers.context is None else SSLCredentials(brokers.context)
    password: Any = brokers.login.password  # a Password, which each connection reads anew
    return SASLCredentials(
        username=brokers.login.username,
        password=password,
        ssl_context=brokers.context,
        mechanism=brokers.login.mechanism.value,
    )


def _topic(app: faust.App, name: str) -> TopicT:
    """A topic of raw bytes. Without acks: offsets are committed by checkpoints (`consumer.py` says why)."""
    return app.topic(
        name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        acks=False,
        allow_empty=True,
    )
