"""The Faust app: two agents and a table."""

from collections.abc import Callable
from typing import Any

import faust
from faust.types import TopicT

from streamgauge.worker.settings import WorkerSettings
from streamgauge.worker.store import StateTable

# A worker that is killed and does not come back gives its partitions to others after this (seconds). Faust's default of
# 60 is longer than workers that come and go every few seconds ever live.
_SESSION_TIMEOUT_S = 10.0
_HEARTBEAT_S = 3.0
# A broker that is slow, not dead, gets this (seconds): more than the session, as Faust demands.
_REQUEST_TIMEOUT_S = 30.0
# Messages between Faust's fetcher and an agent, which hands them on at once: bundles are big.
_BUFFER = 64

Receive = Callable[[Any], None]


def create_app(
    settings: WorkerSettings, segments: Receive, records: Receive | None, instance_id: str | None = None
) -> faust.App:
    """The app; its table is `app.tables["state"]`. `segments` and `records` get each message of their topic.

    `records` None: the records topic is not read. `instance_id`: a static member of the group, None for a dynamic one.
    """
    app = faust.App(
        settings.prefix,
        broker=";".join(f"kafka://{address.strip()}" for address in settings.bootstrap.split(",")),
        store="memory://",
        datadir=str(settings.data_dir / "faust"),
        autodiscover=False,
        web_enabled=False,
        consumer_group_instance_id=instance_id,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=_SESSION_TIMEOUT_S,
        broker_heartbeat_interval=_HEARTBEAT_S,
        broker_request_timeout=_REQUEST_TIMEOUT_S,
        stream_buffer_maxsize=_BUFFER,
        # The default waits at shutdown for messages that are held until their checkpoint.
        stream_wait_empty=False,
        topic_allow_declare=False,  # `streamgauge topics create` makes them, with the configuration that they need
        topic_disable_leader=True,
        table_standby_replicas=0,
    )
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


def _topic(app: faust.App, name: str) -> TopicT:
    """A topic of raw bytes. Without acks: offsets are committed by checkpoints (`seams.py` says why)."""
    return app.topic(
        name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        acks=False,
        allow_empty=True,
    )
