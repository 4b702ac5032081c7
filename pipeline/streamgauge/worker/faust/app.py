"""The Faust app, with two agents and a table: created, started and stopped, and why it crashed."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import faust
from faust.auth import Credentials, SASLCredentials, SSLCredentials
from faust.types import TopicT

from streamgauge.kafka.log_throttle import described_of_client
from streamgauge.kafka.security import Brokers
from streamgauge.kafka.shims.cancelling import end_task, error_of
from streamgauge.kafka.shims.header_names import tolerate_header_names
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.faust.recovery import Tables
from streamgauge.worker.faust.store import StateTable
from streamgauge.worker.faust.transport import transport_of
from streamgauge.worker.settings import WorkerSettings

_LOG = logging.getLogger("streamgauge.worker")

# Heartbeats per session. A heartbeat's response reports that another member has left, so the interval is the delay.
_BEATS = 10
# How long a consumer may fetch nothing before aiokafka removes it from the group (seconds): practically without limit. A
# worker without partitions fetches nothing, and aiokafka never joins again after such a removal
# (https://github.com/aio-libs/aiokafka/issues/1187). The watchdog detects a worker that makes no progress.
_IDLE_S = 366 * 24 * 3600.0
# How long a slow broker may take to answer (seconds): more than the session, as Faust requires.
_REQUEST_TIMEOUT_S = 30.0
# How often the consumer requests the metadata of its topics (milliseconds). A group leader that does not know a topic
# assigns none of its partitions, and aiokafka requests again only after this time or when a connection breaks.
_METADATA_AGE_MS = 10_000
# The most messages between Faust's fetcher and an agent: bundles are large, and the agent passes each on at once.
_BUFFER = 64

Receive = Callable[[Any], None]


def create_app(
    settings: WorkerSettings, segments: Receive, records: Receive | None, instance_id: str | None = None
) -> faust.App:
    """Create the app; its table is `app.tables["state"]`. `segments` and `records` are called with each message.

    `records` None: the records topic is not read. `instance_id`: the id of a static group member; None for a dynamic one.
    """
    tolerate_header_names()
    app = _faust_app(settings, instance_id)
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


def _faust_app(settings: WorkerSettings, instance_id: str | None) -> faust.App:
    """The app with its settings and transport, without tables and agents."""
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
        # By default, Faust waits at shutdown for unacknowledged messages, which wait for their checkpoint.
        stream_wait_empty=False,
        topic_allow_declare=False,  # `streamgauge topics create` creates the topics, with their configuration
        topic_disable_leader=True,
        table_standby_replicas=0,
        TableManager=Tables,
    )
    app.transport = transport_of(app, settings.brokers)
    return app


def _credentials(brokers: Brokers) -> Credentials | None:
    """The TLS and log-in settings as Faust's credentials, which Faust passes to aiokafka."""
    if brokers.login is None:
        return None if brokers.context is None else SSLCredentials(brokers.context)
    password: Any = brokers.login.password  # a Password, which each new connection reads
    return SASLCredentials(
        username=brokers.login.username,
        password=password,
        ssl_context=brokers.context,
        mechanism=brokers.login.mechanism.value,
    )


def _topic(app: faust.App, name: str) -> TopicT:
    """A topic of raw bytes. Without acks, because checkpoints commit the offsets (see `consumer.py`)."""
    return app.topic(
        name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        acks=False,
        allow_empty=True,
    )


class FaustLifecycle:
    """Runs an app of `create_app`, once. `state`: the app's table."""

    def __init__(self, app: faust.App) -> None:
        self._app = app
        self._starting: asyncio.Future[None] | None = None
        self.state = cast(StateTable, app.tables["state"])

    def consumer(self, topic: str) -> FaustConsumer:
        """The app's consumer, for one topic."""
        return FaustConsumer(self._app, topic)

    def start(self) -> None:
        """Begin to start the app. Faust's start does not end until the broker answers."""
        self._starting = asyncio.ensure_future(self._app.start())

    @property
    def crash_reason(self) -> BaseException | None:
        """The error that crashed the app; None if it did not crash."""
        return self._app.crash_reason if self._app.crashed else None

    @property
    def start_error(self) -> BaseException | None:
        """The error that ended the app's start; None if there is none."""
        starting = self._starting
        ended = starting is not None and starting.done() and not starting.cancelled()
        return starting.exception() if starting is not None and ended else None

    async def stop(self, timeout_s: float) -> bool:
        """Stop the app. False if it did not stop in time: its threads may still run."""
        done, _ = await asyncio.wait({asyncio.ensure_future(self._app.stop())}, timeout=timeout_s)
        if self._starting is not None:
            await end_task(self._starting)
        for task in done:
            if (error := error_of(task)) is not None:
                _LOG.warning("Faust did not stop cleanly: %s", described_of_client(error), exc_info=error)
        return bool(done)
