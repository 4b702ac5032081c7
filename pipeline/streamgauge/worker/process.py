"""Run a worker: take its slot, wait for the broker and its topics, run Faust, and stop in order."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import uvloop
from aiokafka.errors import (  # type: ignore[import-untyped]
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streamgauge.core.assembly.assembler import Assembler
from streamgauge.kafka.administrator import Kind, Operation, Right, denied
from streamgauge.kafka.log_throttle import BrokerMonitor, described_of_client
from streamgauge.kafka.producer import Producer
from streamgauge.kafka.shims.cancelling import end_task, error_of
from streamgauge.kafka.topics import MAX_DEADLETTER_BYTES, BrokerUnreachableError, TopicsError, check
from streamgauge.live.view import LiveView
from streamgauge.metrics import table
from streamgauge.metrics.prometheus import Metrics
from streamgauge.runtime.faults import described, report_loop_faults
from streamgauge.runtime.stopping import StopSignal
from streamgauge.worker.assignment import Assignment
from streamgauge.worker.dead_letters import DeadLetters
from streamgauge.worker.faults import BugError, FaustCrashedError, StuckError, WorkerError
from streamgauge.worker.faust.app import FaustLifecycle, create_app
from streamgauge.worker.faust.consumer import FaustConsumer
from streamgauge.worker.ledger_sink import LedgerSink
from streamgauge.worker.log import Log
from streamgauge.worker.log_lines import log_lines_to_stderr
from streamgauge.worker.readiness import Owners, Readiness
from streamgauge.worker.settings import RecordStore, WorkerSettings
from streamgauge.worker.slots import Slot
from streamgauge.worker.topic_identity import TopicIdentityCheck, TopicsMonitor
from streamgauge.worker.watchdog.progress_probe import ProgressProbe
from streamgauge.worker.watchdog.rules import Probe
from streamgauge.worker.watchdog.watchdog import StuckExitCounts, Watchdog

_LOG = logging.getLogger("streamgauge.worker")

# How soon a broker that is unreachable at the start is tried again (seconds).
_RETRY_S = 1.0
# How often the main loop checks whether Faust still runs, and updates the gauges (seconds).
_CHECK_EVERY_S = 0.5
# The producer's batch size for records and state (bytes); a larger state entry gets a request of its own.
_BATCH_BYTES = 256 * 1024
# The most that each step after the drain may take (seconds): sends in flight, Faust's stop, the producers' stop. After a
# stop signal the steps also share what the drain timeout leaves.
_STOP_TIMEOUT_S = 10.0
# What the drain leaves of the drain timeout for these steps, at most half of it (seconds).
_RESERVE_S = 5.0
# What these steps leave of the drain timeout for closing connections, the ledger and the process (seconds).
_TEARDOWN_S = 2.0
# How long all steps after the drain may take until the watchdog ends the process (seconds), with some reserve.
_END_S = 45.0


class Worker:
    """One worker; call `run` once. `ready`: it has its partitions and their state, and accepts messages.

    `live`: it is not stuck. The caller has to start `watchdog`, as `run_worker` does; it may end the whole process.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        store: RecordStore | None = None,
        metrics: Metrics | None = None,
        watch: LiveView | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._watch = watch
        self._metrics = metrics or Metrics()
        self._fault: WorkerError | None = None
        self._assignment: Assignment | None = None
        self._owners: Owners | None = None
        self._deadline: float | None = None  # when it has to have ended (monotonic seconds); None before a stop signal
        self.watchdog = Watchdog(settings.stuck_s, settings.blocked_s)
        self.watchdog.fail = self._fail
        self.hung = False  # a thread or a connection did not end: the process has to end with os._exit

    @property
    def unready(self) -> str | None:
        """The reason why the worker is not ready, as a part of a sentence; None if it is."""
        if self.watchdog.stuck is not None:
            return f"it is stuck: {self.watchdog.stuck.why}"
        if self._fault is not None:
            return "it ends because of an error that is in its log"
        if self._assignment is None or self._owners is None:
            return "it waits for the broker and its topics"
        return self._assignment.unready or self._owners.problem

    @property
    def assemblers(self) -> dict[int, Assembler]:
        """The assemblers of its partitions, by partition; they may be read on the event loop's thread."""
        return {} if self._assignment is None else self._assignment.assemblers

    @property
    def live(self) -> bool:
        """Whether /health/live succeeds: the worker is not stuck."""
        return self.watchdog.stuck is None

    async def run(self, stop: asyncio.Event) -> int:
        """Work until `stop` is set, or until an error; returns the exit code.

        0: stopped. All applied messages are durable and acknowledged, unless the drain timeout passed or the broker did not
        answer; the next owner then reads the unacknowledged messages again.
        """
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._stop_requested())
        self.watchdog.watch("the event loop", asyncio.get_running_loop())
        try:
            with Slot(self._settings.data_dir) as slot:
                if slot.number:
                    others, data_dir = slot.number, self._settings.data_dir
                    _LOG.info(
                        "%d or more other workers use %s; this one is a separate member of the group", others, data_dir
                    )
                self.watchdog.count_exit = StuckExitCounts(slot.exits, slot.instance_id, self._metrics).count
                if not await self._until(stopping, self._wait_for_topics()):
                    await self._work(slot.instance_id, stopping)
        except WorkerError as error:
            self._fail(error)
        except TopicsError as error:
            _LOG.error("%s", error)
            return WorkerError.exit_code
        finally:
            stopping.cancel()
        return self._fault.exit_code if self._fault else 0

    def _stop_requested(self) -> None:
        self._deadline = time.monotonic() + self._settings.drain_timeout
        self.watchdog.expect_end(self._settings.drain_timeout + _END_S)

    def _step_s(self, steps: int) -> float:
        """The time limit of a stop step (seconds), if `steps` steps, including it, are still to come."""
        if self._deadline is None:
            return _STOP_TIMEOUT_S
        return min(_STOP_TIMEOUT_S, max(self._deadline - _TEARDOWN_S - time.monotonic(), 0.0) / steps)

    def _fail(self, fault: WorkerError) -> None:
        """End the worker because of `fault`. Only the first fault is kept and logged."""
        if self._fault is None:
            self._fault = fault
            raised = fault.error if isinstance(fault, BugError) else fault.__cause__
            stacks = fault.stacks if isinstance(fault, StuckError) else None
            _LOG.error("%s", fault, exc_info=raised, extra={"stacks": stacks})
            self.watchdog.expect_end(_END_S)

    async def _until(self, stopping: "asyncio.Task[bool]", work: Coroutine[Any, Any, Any]) -> bool:
        """Run `work` until it ends or `stopping` is done; returns whether `stopping` is done."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        else:
            await end_task(task)
        return stopping.done()

    async def _wait_for_topics(self) -> None:
        monitor = BrokerMonitor(self._settings.brokers, _never, "the worker waits for it")
        while True:
            try:
                await check(self._settings.brokers, self._settings.prefix)
            except BrokerUnreachableError as error:
                if not self._settings.wait_for_broker:
                    raise
                monitor.report(False, error.why)
                self._metrics.set(table.WORKER_BROKER.name, 0)
                await asyncio.sleep(_RETRY_S)
            else:
                monitor.report(True)
                return

    # --- once the broker and the topics are available ---------------------------------------------------------------

    async def _work(self, instance_id: str, stopping: "asyncio.Task[bool]") -> None:
        producer = Producer(self._settings.brokers, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=_BATCH_BYTES)
        dead_letter_producer = Producer(
            self._settings.brokers, max_message_bytes=MAX_DEADLETTER_BYTES, batch_bytes=_BATCH_BYTES
        )
        limits = self._settings.dead_letter_limit, self._settings.foreign_alone_s
        dead_letters = DeadLetters(dead_letter_producer, self._settings.topics, self._metrics, *limits)
        log = Log(self._settings.brokers, self._settings.prefix)
        monitor = BrokerMonitor(self._settings.brokers, producer.answers, "the worker waits for it", producer.refusal)
        try:
            if await self._until(stopping, self._connect(producer, log)):
                return
            monitor.report(True)
            await self._run_faust(instance_id, stopping, producer, dead_letters, log, monitor)
        except KafkaError as error:
            self._fail(FaustCrashedError(f"the connection to the broker was lost at the start: {error!r}"))
        finally:
            await self._disconnect(producer, dead_letter_producer, log)

    async def _connect(self, producer: Producer, log: Log) -> None:
        """Connect both. Waits again, as at the start, for a broker that became unreachable since the check."""
        while not await producer.start():
            await asyncio.sleep(_RETRY_S)
            await self._wait_for_topics()
        while True:
            try:
                await log.start()
            except KafkaError:
                await log.stop()
                await asyncio.sleep(_RETRY_S)
                await self._wait_for_topics()
            else:
                return

    async def _disconnect(self, producer: Producer, dead_letter_producer: Producer, log: Log) -> None:
        """Close all connections in parallel, within the remaining time. If one does not close in time, `hung` is set."""
        timeout_s = self._step_s(1)
        # The dead letters' producer needs no time to flush: `DeadLetters.write` returns only after the confirmation.
        parts = [
            asyncio.ensure_future(part) for part in (producer.stop(timeout_s), dead_letter_producer.stop(0), log.stop())
        ]
        done, waiting = await asyncio.wait(parts, timeout=timeout_s + _TEARDOWN_S / 2)
        self.hung = self.hung or bool(waiting)
        for part in done:
            if (error := error_of(part)) is not None:
                _LOG.warning(
                    "a connection to the broker did not close cleanly: %s", described_of_client(error), exc_info=error
                )

    async def _run_faust(
        self,
        instance_id: str,
        stopping: "asyncio.Task[bool]",
        producer: Producer,
        dead_letters: DeadLetters,
        log: Log,
        monitor: BrokerMonitor,
    ) -> None:
        assignment = self._assignment = Assignment(self._settings, producer, self._metrics, self._fail, self._watch)
        ledger_sink = LedgerSink(self._settings, self._store, self._metrics, self._fail) if self._store else None
        receive = ledger_sink.receive if ledger_sink else None
        running = FaustLifecycle(create_app(self._settings, assignment.receive, receive, instance_id))
        topics = self._settings.topics
        identity_check = partial(TopicIdentityCheck, log, topics, segments_id=self._settings.segments_id)
        segments = running.consumer(topics.segments)
        jobs = [assignment.connect(segments, running.state, log, dead_letters, identity_check).run(), monitor.run()]
        jobs.append(TopicsMonitor(log, topics, self._metrics, assignment.unread, self._fail).run())
        if ledger_sink:
            records = running.consumer(topics.records)
            jobs += [ledger_sink.connect(records, running.state, log, dead_letters).run(), ledger_sink.run()]
        parts: list[Assignment | LedgerSink] = [assignment, ledger_sink] if ledger_sink else [assignment]
        owners = self._owners = Owners(log, [part.consumer for part in parts])

        def probed(result: Probe) -> None:
            self.watchdog.report(result)
            assignment.probed(result.progress)

        jobs.append(ProgressProbe(log, parts, probed, owners).run())
        readiness = Readiness()
        tasks = [asyncio.ensure_future(job) for job in jobs]
        running.start()
        try:
            while not (stopping.done() or self._fault or self._has_crashed(running, segments)):
                assignment.report()
                assignment.report_silence(asyncio.get_running_loop().time())
                self._metrics.set(table.WORKER_BROKER.name, int(monitor.connected))
                partitions = assignment.partitions if monitor.connected else None
                readiness.update(
                    self.unready if monitor.connected else None, asyncio.get_running_loop().time(), partitions
                )
                self._check_tasks(tasks)
                self._watch_consumer(segments)
                await asyncio.wait({stopping}, timeout=_CHECK_EVERY_S)
            await self._drain(assignment, ledger_sink)
        finally:
            await self._stop_faust(running)
            for task in tasks:
                await end_task(task)
            if ledger_sink and ledger_sink.close():
                self.hung = True

    def _watch_consumer(self, consumer: FaustConsumer) -> None:
        """Let the watchdog watch the consumer's event loop as soon as its thread runs, long before the state is recovered."""
        loop = consumer.loop
        if loop is not None and loop.is_running():
            self.watchdog.watch("the consumer's event loop", loop)

    def _check_tasks(self, tasks: "Sequence[asyncio.Future[None]]") -> None:
        """End the worker if one of its background tasks has failed."""
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                self._fail(BugError(f"internal error in a part of the worker: {described(error)}", error))

    def _has_crashed(self, running: FaustLifecycle, consumer: FaustConsumer) -> bool:
        reason = running.crash_reason or consumer.membership_error or running.start_error
        if reason is None:
            return False
        sentence = self._revoked_right(reason)
        fault = FaustCrashedError(f"the consumer failed: {sentence or described_of_client(reason)}")
        fault.__cause__ = reason
        self._fail(fault)
        return True

    def _revoked_right(self, reason: BaseException) -> str | None:
        """The sentence for a right that was revoked while the worker ran; None if `reason` is another error."""
        match reason:
            case TopicAuthorizationFailedError(args=(str() as name,)):
                right = Right(Operation.READ, Kind.TOPIC, name)
            case GroupAuthorizationFailedError(args=(str() as name,)):
                right = Right(Operation.READ, Kind.GROUP, name)
            case _:
                return None
        login = self._settings.brokers.login
        return str(denied(login.username if login else None, [right]))

    async def _drain(self, assignment: Assignment, ledger_sink: LedgerSink | None) -> None:
        """Make the applied messages durable, unless an error ends the worker; unacknowledged messages are read again."""
        if self._fault is not None:
            return
        try:
            timeout_s = self._settings.drain_timeout
            async with asyncio.timeout(max(timeout_s - _RESERVE_S, timeout_s / 2)):
                await asyncio.gather(assignment.drain(), ledger_sink.drain() if ledger_sink else asyncio.sleep(0))
        except TimeoutError:
            _LOG.warning("--drain-timeout has passed: the next worker continues from the last checkpoint")

    async def _stop_faust(self, running: FaustLifecycle) -> None:
        if self._assignment is not None:
            discarding = asyncio.ensure_future(self._assignment.discard())
            await asyncio.wait({discarding}, timeout=self._step_s(3))
            if self._settings.on_stop == "leave" if self._fault is None else self._fault.leaves:
                self._assignment.consumer.leave_on_stop()
        self.hung = not await running.stop(self._step_s(2))


async def _never() -> None:
    return None


# --- the process ----------------------------------------------------------------------------------------------------


Beside = Callable[[Worker], contextlib.AbstractAsyncContextManager[object]]


def run_worker(
    settings: WorkerSettings,
    store: RecordStore | None = None,
    metrics: Metrics | None = None,
    beside: Beside | None = None,
    watch: LiveView | None = None,
) -> int:
    """Run a worker until SIGTERM or SIGINT; returns the exit code. `beside`: a context that is open while the worker runs.

    `watch` follows its streams.
    """
    log_lines_to_stderr()
    # A policy, because Faust's consumer has an event loop of its own in its thread, which has to be uvloop as well.
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    worker = Worker(settings, store, metrics, watch)
    worker.watchdog.start()
    try:
        code = asyncio.run(_run_until_signal(worker, beside))
        if worker.hung:
            logging.shutdown()
            os._exit(code)  # a thread that waits for a broker or a disk would keep the process alive
        return code
    finally:
        worker.watchdog.stop()


async def _run_until_signal(worker: Worker, beside: Beside | None) -> int:
    asyncio.get_running_loop().set_exception_handler(report_loop_faults("the worker's event loop"))
    left = "the next owner of its partitions reads unacknowledged messages again"
    stop = StopSignal("worker", partial(_LOG.warning, "%s"), lambda: left).stop
    async with beside(worker) if beside else contextlib.nullcontext():
        return await worker.run(stop)
