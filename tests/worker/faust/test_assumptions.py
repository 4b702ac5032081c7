"""What this program assumes of the insides of Faust, mode and aiokafka: a test for each, against the installed version.

Their public interfaces do not promise it, so a new version may change it. Then the test of that name fails, and its module
has to change: those in pipeline/streamgauge/worker/faust/, and the ones of pipeline/streamgauge/kafka/ that
tests/architecture/test_structure.py lists as INSIDES.
"""

import asyncio
import importlib.metadata
import inspect
import itertools
import logging
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason, collect_hosts, create_conn
from aiokafka.consumer import fetcher
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol, ConsumerProtocolMemberMetadata
from aiokafka.errors import IllegalStateError, KafkaConnectionError
from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.group import JoinGroupResponse_v5
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords
from faust.exceptions import ConsumerNotStarted
from faust.stores.memory import Store as MemoryStore
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service, WaitResults
from mode.threads import ServiceThread
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PINNED = ("faust-streaming", "mode-streaming", "aiokafka")
PLACE = TP("topic", 0)


def pins() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())
    return {one.name: one for one in map(Requirement, (*project["dependencies"], *extras))}


def parameters(function: Callable[..., Any]) -> list[str]:
    """Names of parameters, without `self`."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def in_a_loop() -> Any:
        return await asyncio.wait_for(work(), 10)

    return asyncio.run(in_a_loop())


def new_app() -> Any:
    """An app that is never started."""
    return faust.App("test", broker="kafka://127.0.0.1:1", autodiscover=False, loop=asyncio.get_running_loop())


def new_consumer() -> Any:
    """Faust's consumer as an app makes it; its thread is never started."""
    consumer: Any = new_app().transport.create_consumer(
        lambda message: None, on_partitions_revoked=lambda revoked: None, on_partitions_assigned=lambda assigned: None
    )
    consumer._thread.thread_loop.close()
    return consumer


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PINNED)
def test_the_installed_version_is_one_that_the_pins_allow(name: str) -> None:
    specifier = pins()[name].specifier
    assert any(one.operator == "<" for one in specifier), f"{name} is not pinned from above"
    assert importlib.metadata.version(name) in specifier


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_the_locked_versions_are_ones_that_the_pins_allow(lock: str) -> None:
    locked = dict(re.findall(r"^([a-z-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))
    for name in PINNED:
        assert locked[name] in pins()[name].specifier, name


# --- mode -----------------------------------------------------------------------------------------------------------


def test_wait_first_gives_what_is_done_first_and_stopped_when_time_is_over() -> None:
    """`transport.Eager` does the same without tasks; `recovery.Recovery` reads `stopped` as either."""

    async def work() -> None:
        service = _Any()
        await service.start()
        event = asyncio.Event()
        event.set()
        found = await service.wait_first(event, asyncio.Event())  # type: ignore[arg-type]
        assert isinstance(found, WaitResults)
        assert (found.done, found.stopped) == ([event], False)  # type: ignore[comparison-overlap]
        assert (await service.wait_first(asyncio.Event(), timeout=0.01)).stopped  # type: ignore[arg-type]
        await service.stop()
        assert service.should_stop

    run(work)


class _Any(Service):
    """A service that does nothing."""


def test_a_service_thread_makes_its_loop_with_itself_and_calls_methods_there() -> None:
    """`FaustConsumer.loop` and `commit`."""

    async def work() -> None:
        thread = new_consumer()._thread
        assert isinstance(thread, ServiceThread)
        assert isinstance(thread.thread_loop, asyncio.AbstractEventLoop)
        assert thread.thread_loop is not asyncio.get_running_loop()
        assert parameters(thread.call_thread) == ["fun", "args", "kwargs"]  # type: ignore[attr-defined]

    run(work)


def test_a_service_logs_by_the_logger_of_its_class() -> None:
    """Services that derive from Faust's name FAUST_LOG there, so that their lines belong to Faust's own log."""

    async def work() -> None:
        class Ours(_Any):
            logger = logging.getLogger("faust.ours")

        assert Ours().log.logger is Ours.logger

    run(work)


def test_a_crashed_service_keeps_its_reason() -> None:
    """`FaustLifecycle.crash_reason`."""

    async def work() -> None:
        app = new_app()
        assert not app.crashed
        reason = OSError("away")
        app._crash(reason)
        assert (app.crashed, app.crash_reason) == (True, reason)

    run(work)


# --- Faust: the app and its consumer ----------------------------------------------------------------------------------


def test_the_app_counts_rebalances_and_has_the_generation_of_its_consumer() -> None:
    """`FaustConsumer.generation`, `rebalance` and `rebalancing`."""

    async def work() -> None:
        app = new_app()
        before = app.rebalancing_count
        app.on_rebalance_start()
        assert (app.rebalancing, app.rebalancing_count) == (True, before + 1)
        assert isinstance(app.consumer_generation_id, int)
        source = inspect.getsource(driver.ConsumerRebalanceListener.on_partitions_assigned)
        assert "app.consumer_generation_id = generation" in source

    run(work)


def test_signals_of_rebalances_keep_their_receivers_and_call_each_in_any_order() -> None:
    """`FaustConsumer.on_revoked` connects functions that nothing else refers to."""

    async def work() -> None:
        app, heard = new_app(), dict[int, object]()

        def connect(number: int) -> None:
            async def receiver(*given: Any, **_: Any) -> None:
                heard[number] = given[1]

            app.on_partitions_revoked.connect(receiver)

        for number in (1, 2):
            connect(number)
        await app.on_partitions_revoked.send({PLACE})
        assert heard == {1: {PLACE}, 2: {PLACE}}

    run(work)


def test_a_full_buffer_takes_a_partition_out_of_those_that_are_fetched_and_loses_nothing() -> None:
    """`transport.Consumer.hold` and `release`; messages that were fetched come from `_buffered_partitions`, too."""

    async def work() -> None:
        consumer = new_consumer()
        consumer._set_active_tps({PLACE})
        consumer.on_buffer_full(PLACE)
        assert (consumer._get_active_partitions(), consumer._buffered_partitions) == (set(), {PLACE})
        assert "tp in self._buffered_partitions" in inspect.getsource(driver.Consumer.getmany)
        consumer.on_buffer_drop(PLACE)
        assert (consumer._get_active_partitions(), consumer._buffered_partitions) == ({PLACE}, set())

    run(work)


def test_a_recovery_ends_with_all_partitions_fetched() -> None:
    """`transport.Consumer.resume_partitions` forgets there which partitions were held."""
    source = inspect.getsource(Recovery.on_recovery_completed)
    assert source.index("table.on_recovery_completed(") < source.index("consumer.resume_partitions(")


def test_before_its_thread_runs_a_consumer_says_that_it_is_not_started() -> None:
    """`FaustConsumer.assigned`."""

    async def work() -> None:
        consumer = new_consumer()
        with pytest.raises(ConsumerNotStarted):
            consumer.assignment()
        with pytest.raises(ConsumerNotStarted):
            consumer._thread._ensure_consumer()
        assert consumer._thread._consumer is None

    run(work)


def test_messages_below_the_read_offset_are_dropped_and_none_means_no_limit() -> None:
    """`FaustConsumer.seek` sets it."""

    async def work() -> None:
        assert new_consumer()._read_offset[PLACE] is None

    run(work)
    source = inspect.getsource(driver.Consumer._drain_messages)
    assert "get_read_offset = self._read_offset.__getitem__" in source
    assert "if r_offset is None or offset >= r_offset:" in source


def test_each_message_is_delivered_by_wait_first() -> None:
    """`transport.Eager` takes the delivery's first step there."""
    source = re.sub(r"\s+", " ", inspect.getsource(driver.Consumer._drain_messages))
    assert "await self.wait_first( callback(message), self.suspend_flow.wait() )" in source


def test_a_message_has_its_generation_its_time_in_seconds_and_a_value_that_can_be_let_go() -> None:
    """`Assignment.receive`, `Partition._apply` and `Partition._take`."""

    async def work() -> None:
        consumer = new_consumer()
        consumer.app.consumer_generation_id = 7
        record = SimpleNamespace(
            topic="topic", partition=0, offset=5, timestamp=1_500, timestamp_type=1, headers=[("a", b"b")],
            key=b"k", value=b"v", checksum=None, serialized_key_size=1, serialized_value_size=1,
        )  # fmt: skip
        message = consumer._to_message(PLACE, record)
        assert (message.generation_id, message.partition, message.offset, message.timestamp) == (7, 0, 5, 1.5)
        message.value = None

    run(work)


# --- Faust: the transport ---------------------------------------------------------------------------------------------


OVERRIDDEN: list[tuple[Any, str, list[str]]] = [
    (Service, "wait_first", ["coros", "timeout"]),
    (driver.AIOKafkaConsumerThread, "_create_worker_consumer", ["transport"]),
    (driver.AIOKafkaConsumerThread, "on_start", []),
    (driver.AIOKafkaConsumerThread, "on_thread_stop", []),
    (driver.AIOKafkaConsumerThread, "_fetch_records", ["consumer", "active_partitions", "timeout", "max_records"]),
    (driver.Consumer, "_getmany", ["active_partitions", "timeout"]),
    (driver.Consumer, "seek_wait", ["partitions"]),
    (driver.Consumer, "perform_seek", []),
    (driver.Consumer, "on_buffer_drop", ["tp"]),
    (driver.Consumer, "resume_partitions", ["tps"]),
    (driver.Consumer, "_wait_next_records", ["timeout"]),
    (driver.Consumer, "_new_consumer_thread", []),
    (driver.Producer, "on_start", []),
    (Recovery, "_wait", ["coro", "timeout"]),
    (Recovery, "_seek_offsets", ["consumer", "tps", "offsets", "title"]),
    (MemoryStore, "__post_init__", []),
    (MemoryStore, "apply_changelog_batch", ["batch", "to_key", "to_value"]),
    (MemoryStore, "on_recovery_completed", ["active_tps", "standby_tps"]),
    (faust.Table, "on_changelog_event", ["event"]),
    (faust.Table, "on_recovery_completed", ["active_tps", "standby_tps"]),
    (faust.Table, "_new_store", []),
]


@pytest.mark.parametrize(("owner", "name", "wanted"), OVERRIDDEN, ids=lambda one: getattr(one, "__name__", str(one)))
def test_what_is_overridden_is_there_with_these_parameters(owner: Any, name: str, wanted: list[str]) -> None:
    assert parameters(getattr(owner, name)) == wanted


def test_the_transport_makes_the_clients_that_its_class_names() -> None:
    """`transport.Transport`."""

    async def work() -> None:
        app = new_app()

        class Consumer(driver.Consumer):
            """Another one."""

        class Producer(driver.Producer):
            """Another one."""

        class Transport(driver.Transport):
            """With both."""

        Transport.Consumer, Transport.Producer = Consumer, Producer
        app.transport = Transport(app.conf.broker_consumer, app)
        made = app.transport.create_consumer(
            lambda message: None,
            on_partitions_revoked=lambda revoked: None,
            on_partitions_assigned=lambda assigned: None,
        )
        made._thread.thread_loop.close()
        assert isinstance(made, Consumer)
        assert isinstance(app.transport.create_producer(), Producer)
        assert driver.Producer._producer is None

    run(work)


def test_the_consumers_flow_and_active_partitions_are_one_flag_and_one_set() -> None:
    """`transport.Consumer._wait_next_records`: aiokafka takes an empty set for all partitions."""

    async def work() -> None:
        consumer = new_consumer()
        consumer.resume_flow()
        assert consumer.flow_active
        consumer.stop_flow()
        assert not consumer.flow_active
        given = consumer._set_active_tps({PLACE})
        assert consumer._get_active_partitions() is given is consumer._active_partitions

    run(work)
    assert "await self.sleep(1)" in inspect.getsource(driver.Consumer._wait_next_records)


# --- Faust: the table and its recovery --------------------------------------------------------------------------------


def test_the_table_manager_makes_its_recovery_when_it_is_first_asked() -> None:
    """`recovery.Tables.recovery`."""

    async def work() -> None:
        app = new_app()
        tables: Any = TableManager(app)
        assert tables._recovery is None
        assert isinstance(tables.recovery, Recovery)
        assert tables._recovery is tables.recovery

    run(work)


def test_a_recovery_says_how_far_it_is_and_whether_it_starts_again() -> None:
    """`recovery_is_whole`, `FaustConsumer.recovered_offsets`, `Recovery._while_it_reads`."""

    async def work() -> None:
        app = new_app()
        recovery: Any = app.tables.recovery
        recovery.active_tps.add(PLACE)
        recovery.active_highwaters[PLACE], recovery.active_offsets[PLACE] = 9, 4
        assert recovery.need_recovery()
        assert sum(recovery.active_remaining().values()) == 5
        recovery.active_offsets[PLACE] = 9
        assert not recovery.need_recovery()
        assert not recovery.in_recovery
        assert not recovery.signal_recovery_start.is_set()
        assert not recovery.should_stop

    run(work)


def test_a_recovery_has_the_generation_of_the_assignment_that_it_reads_for() -> None:
    """`recovery_is_whole`: the app has the new generation before the recovery has."""

    async def work() -> None:
        app = new_app()
        recovery: Any = app.tables.recovery
        app.consumer_generation_id = 7
        assert recovery._generation_id == 0
        await recovery.on_rebalance({PLACE}, set(), {PLACE}, generation_id=6)  # of an assignment that is over
        assert recovery._generation_id == 0
        await recovery.on_rebalance({PLACE}, set(), {PLACE}, generation_id=7)
        assert recovery._generation_id == 7

    run(work)


def test_a_recovery_that_has_to_start_again_goes_on_and_one_that_was_stopped_ends() -> None:
    """`Recovery._wait` raises these."""
    source = inspect.getsource(Recovery).partition("async def _restart_recovery")[2]
    assert re.search(
        r"except RebalanceAgain as \w+:.*?continue.*?except ServiceStopped as \w+:.*?break", source, re.DOTALL
    )
    assert issubclass(RebalanceAgain, Exception)
    assert issubclass(ServiceStopped, Exception)


def test_a_recovery_counts_a_new_message_as_read_before_it_tells_the_table() -> None:
    """`Recovery.check_delivery` may set the offset back. The seeks of a recovery are those of `_seek_offsets` alone."""
    source = inspect.getsource(Recovery).partition("async def _slurp_changelogs")[2]
    assert re.search(
        r"offset > seen_offset:\s+offsets\[tp\] = offset\b.*?await table\.on_changelog_event\(event\)",
        source,
        re.DOTALL,
    )
    assert inspect.getsource(Recovery).count("seek_wait(") == 1


def test_a_memory_store_has_a_dictionary_and_the_partition_of_each_key_and_drops_what_is_not_ours() -> None:
    """`store.NewestStore`."""

    async def work() -> None:
        app = new_app()
        table: Any = app.Table("any", partitions=1)
        store: Any = MemoryStore("memory://", app, table)
        store.data |= {b"0": b"a", b"1": b"b"}
        store._key_partition |= {b"0": 0, b"1": 1}
        await store.on_recovery_completed({TP("state", 0)}, set())
        assert store.data == {b"0": b"a"}
        assert store._key_partition == {b"0": 0}

    run(work)


def test_a_table_keeps_its_store_and_calls_back_when_it_is_recovered() -> None:
    """`StateTable.newest`, `StateTable.on_recovery_completed`."""

    async def work() -> None:
        table: Any = new_app().Table("any", partitions=1)
        assert table.data is table.data
        heard: list[str] = []

        async def recovered() -> None:
            heard.append("recovered")

        table.on_recover(recovered)
        await table.on_recovery_completed(set(), set())
        assert heard == ["recovered"]

    run(work)


# --- aiokafka: a consumer and its group -------------------------------------------------------------------------------


@pytest.fixture
def no_broker() -> dict[str, Any]:
    """Of a client that never connects."""
    return {"bootstrap_servers": "127.0.0.1:1"}


def test_consumer_has_a_fetch_wait_that_can_be_set_before_its_start(no_broker: dict[str, Any]) -> None:
    """`transport._Thread`; and Faust asks for `_max_poll_records` by itself."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(**no_broker, fetch_max_wait_ms=1500)
        assert consumer._fetch_max_wait_ms == 1500
        assert consumer._coordinator is None
        await consumer.stop()

    run(work)
    assert "fetch_max_wait_ms=self._fetch_max_wait_ms" in inspect.getsource(AIOKafkaConsumer.start)


def test_a_consumer_that_does_not_have_a_partition_raises_for_its_end(no_broker: dict[str, Any]) -> None:
    """`FaustConsumer.end`."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(**no_broker)
        with pytest.raises((AssertionError, IllegalStateError, KeyError)):
            consumer.highwater(TopicPartition("topic", 0))
        await consumer.stop()

    run(work)


@pytest.fixture
def coordinator() -> Any:
    """A coordinator without its tasks."""
    made: Any = object.__new__(GroupCoordinator)
    made.group_id, made.generation, made.member_id = "group", 3, "member"
    return made


def test_a_member_leaves_its_group_unless_it_is_static(coordinator: Any) -> None:
    """`FaustConsumer.leave_on_stop` makes a static one dynamic."""
    sent: list[Any] = []

    async def send(request: Any) -> None:
        sent.append(request)

    coordinator._send_req, coordinator.reset_generation = send, lambda: None
    coordinator._group_instance_id = "static"
    run(coordinator._maybe_leave_group)
    assert sent == []
    coordinator._group_instance_id = None
    run(coordinator._maybe_leave_group)
    assert len(sent) == 1
    assert "_maybe_leave_group()" in inspect.getsource(GroupCoordinator.close)


def test_coordinator_has_a_task_and_keeps_the_error_until_it_is_read() -> None:
    """`FaustConsumer.membership_error` and `is_member`."""
    source = inspect.getsource(GroupCoordinator)
    assert "self._coordination_task = create_task(self._coordination_routine())" in source
    assert "self._pending_exception = None" in inspect.getsource(GroupCoordinator.__init__)
    assert "self._pending_exception = exc" in inspect.getsource(GroupCoordinator._push_error_to_user)


def test_a_heartbeat_says_whether_the_group_knows_the_member(coordinator: Any) -> None:
    """`FaustConsumer.is_current`."""
    answers = iter([0, 25])  # no error, UNKNOWN_MEMBER_ID

    async def send(_: Any) -> Any:
        return SimpleNamespace(error_code=next(answers))

    coordinator._send_req = send
    coordinator.reset_generation = coordinator.request_rejoin = lambda: None
    assert run(coordinator._do_heartbeat) is True
    assert run(coordinator._do_heartbeat) is False


def test_a_leader_assigns_by_a_method_that_it_looks_up_on_its_coordinator() -> None:
    """`group_leader.wait_for_topics_before_assigning` puts another one there."""
    assert inspect.iscoroutinefunction(GroupCoordinator._perform_assignment)
    assert parameters(GroupCoordinator._perform_assignment) == ["response"]
    source = inspect.getsource(CoordinatorGroupRebalance._on_join_leader)
    assert "await self._coordinator._perform_assignment(response)" in source


def test_a_coordinator_has_its_client_its_times_and_a_future_that_says_that_it_closes() -> None:
    """`group_leader._assign`."""
    source = inspect.getsource(GroupCoordinator.__init__)
    for name in ("session_timeout_ms", "retry_backoff_ms"):
        assert f"self._{name} = {name}" in source
    assert "self._closing = create_future()" in source
    assert "self._client = client" in inspect.getsource(GroupCoordinator.__mro__[1].__init__)
    assert parameters(AIOKafkaClient.set_topics) == ["topics"]


def test_the_last_part_of_a_joined_member_is_its_subscription() -> None:
    """`group_leader._assign`."""
    metadata = ConsumerProtocolMemberMetadata(0, ["segments"], b"")
    members = [("member", None, metadata.encode())]
    response = JoinGroupResponse_v5(0, 0, 1, "faust", "leader", "member", members)
    [member] = response.members
    assert ConsumerProtocol.METADATA.decode(member[-1]).subscription == ["segments"]


# --- aiokafka: clients --------------------------------------------------------------------------------------------------


def test_the_administrator_sends_any_request_to_a_broker_or_to_one_of_them() -> None:
    """`admin_requests` sends its requests so."""
    assert inspect.iscoroutinefunction(AIOKafkaAdminClient._send_request)
    assert parameters(AIOKafkaAdminClient._send_request) == ["request", "node_id"]


def test_a_request_of_our_own_is_made_by_its_version() -> None:
    """`admin_requests`: what the broker does not speak is NotImplementedError or IncompatibleBrokerVersion."""
    assert parameters(Request.build) == ["request_struct_class"]
    assert {"API_KEY", "API_VERSION", "RESPONSE_TYPE", "SCHEMA"} <= set(inspect.get_annotations(RequestStruct)) | set(
        dir(RequestStruct)
    )


def test_client_keeps_the_bootstrap_connection_if_the_metadata_names_no_broker(no_broker: dict[str, Any]) -> None:
    """`connections._until_broker_named` closes it and asks again."""

    async def work() -> None:
        client = AIOKafkaClient(**no_broker, request_timeout_ms=1_000, retry_backoff_ms=100)
        assert (client._request_timeout_ms, client._retry_backoff, client._conns) == (1_000, 0.1, {})
        assert not client.cluster.brokers()

    run(work)
    source = inspect.getsource(inspect.getmodule(AIOKafkaClient) or AIOKafkaClient)
    assert 'bootstrap_id = ("bootstrap", ConnectionGroup.DEFAULT)' in source
    assert "self._conns[bootstrap_id] = bootstrap_conn" in source
    assert hasattr(ConnectionGroup, "DEFAULT")


def test_a_connection_writes_in_two_methods_and_is_closed_with_a_reason() -> None:
    """`connections.patch_connections` wraps both, and closes what was broken."""
    source = inspect.getsource(AIOKafkaConnection)
    writes = [
        block.partition("(")[0] for block in re.split(r"\n    (?:async )?def ", source) if "_writer.write(" in block
    ]
    assert writes == ["send", "_send_sasl_token"]
    assert parameters(AIOKafkaConnection.close) == ["reason", "exc"]
    assert hasattr(CloseReason, "CONNECTION_BROKEN")


def test_a_client_keeps_its_password_under_a_name_and_reads_it_for_each_connection() -> None:
    """`passwords.read_passwords_late` puts a property there."""
    source = inspect.getsource(inspect.getmodule(AIOKafkaClient) or AIOKafkaClient)
    assert source.count("sasl_plain_password=self._sasl_plain_password,") == source.count("await create_conn(") == 2


def test_a_connection_can_be_made_by_itself() -> None:
    """`connection_diagnosis.refusal_of`."""
    assert [(host, port) for host, port, _ in collect_hosts("a:1,b:2", randomize=False)] == [("a", 1), ("b", 2)]
    assert {"request_timeout_ms", "ssl_context", "security_protocol", "sasl_plain_password"} <= set(
        parameters(create_conn)
    )


def test_producer_can_be_discarded_with_its_buffered_messages(no_broker: dict[str, Any]) -> None:
    """`discarding.discard`."""

    async def work() -> None:
        producer: Any = AIOKafkaProducer(**no_broker)
        assert producer._closed is False
        assert producer._sender.sender_task is None
        accumulator = producer._message_accumulator
        place = TopicPartition("topic", 0)
        future = await accumulator.add_message(place, None, b"value", timeout=1)
        [batch] = accumulator._batches[place]
        assert not batch._drain_waiter.done()
        accumulator.fail_all(KafkaConnectionError("given up"))
        assert isinstance(batch._drain_waiter.exception(), KafkaConnectionError)
        assert isinstance(future.exception(), KafkaConnectionError)
        producer._closed = True

    run(work)


def test_a_producer_refuses_an_unknown_partition_by_an_assertion() -> None:
    """`Producer.send` makes an error of Kafka of it."""
    assert re.search(
        r"assert partition in self\._metadata\.partitions_for_topic\(", inspect.getsource(AIOKafkaProducer)
    )


# --- aiokafka: batches --------------------------------------------------------------------------------------------------


@pytest.fixture
def batch() -> Iterator[bytes]:
    """One batch with one record."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=9_999,
    )  # fmt: skip
    builder.append(0, 0, b"key", b"value", [("name", b"text")])
    yield bytes(builder.build())


def test_consumers_read_batches_by_a_class_that_the_fetcher_looks_up_in_its_module() -> None:
    """`header_names.tolerate_header_names` puts another one there."""
    assert "MemoryRecords" in vars(fetcher)
    assert re.search(r"\bMemoryRecords\(", inspect.getsource(fetcher))


def test_an_answers_batches_come_one_after_the_other(batch: bytes) -> None:
    """`header_names.TolerantRecords` stands for it."""
    records = MemoryRecords(batch + batch)
    assert records.size_in_bytes() == 2 * len(batch)
    assert records.has_next()
    assert [record.value for record in records.next_batch()] == [b"value"]
    assert records.next_batch() is not None
    assert records.next_batch() is None


def test_the_decoder_in_python_has_a_buffer_that_can_be_replaced(batch: bytes) -> None:
    """`header_names._tolerant`: the names of headers are decoded from slices of it."""
    decoder = _DefaultRecordBatchPy(batch)
    decoder._maybe_uncompress()

    class Buffer(bytearray):
        """Another one."""

        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            return Named(found) if isinstance(place, slice) else found

    class Named(bytearray):
        """Its slices."""

        def decode(self, *_: Any) -> str:
            return "another name"

    decoder._buffer = Buffer(decoder._buffer)
    assert [record.headers for record in decoder] == [[("another name", b"text")]]
