"""The worker: bundles in, records out, through Faust; exactly one distinct record a stream on an at-least-once log.

process.py       a worker's life; `run_worker`
assignment.py    partitions assigned, recovered, revoked, drained
partition.py     one partition: apply in order, checkpoint
partition_offsets.py   which of its messages are read, and whether some were missed
topic_identity.py      whether the topics are those that the state belongs to
confirmed_sender.py    what a partition sends, and when all of it is durable
offset_commits.py      offsets, committed at an interval
activity_clock.py      how a partition spends its time, by activity
owners.py        whether each partition has an owner in the group
readiness.py     the log lines of a worker that is not ready
ledger_sink.py   from the records topic to the ledger
log.py           where a partition begins and ends, and what the group has committed
log_lines.py     log records as lines of JSON
slots.py         the group member ids of a data directory
message_size.py settings.py faults.py dead_letters.py
faust/           all that knows Faust: nothing else imports it
watchdog/        detects a worker that is stuck, and ends it
"""

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.process import Worker, run_worker
from streamgauge.worker.settings import RecordStore, Stored, WorkerMetrics, WorkerSettings

__all__ = ["RecordStore", "Stored", "Worker", "WorkerMetrics", "WorkerSettings", "create_app", "run_worker"]
