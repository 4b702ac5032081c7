"""The worker: bundles in, records out, through Faust; exactly one distinct record a stream on an at-least-once log.

run.py           a worker's life; `run_worker`
app.py           the Faust app: two agents and a table
assignment.py    partitions given, recovered, taken away, drained
partition.py     one partition: apply in order, checkpoint
recognition.py   whether the topics are those that the state speaks of
outbox.py        what a partition sends, and when all of it is durable
acknowledging.py offsets, committed once in a while
store.py         the table's store, which keeps the newest entry
recovery.py      Faust's recovery of the table, which an outage does not end
group_leader.py  assigning partitions only once the topics are known
owners.py        whether each partition has an owner in the group
readiness.py     the log line of a worker that is not ready
storing.py       from the records topic to where records rest
health.py        when a worker is stuck, judged from what is found
checkup.py       what is found: the broker's word on what is done and what waits
watchdog.py      the thread that looks, and ends a stuck worker
exits.py         how often it did, kept for the next life
stacks.py        what each thread and task did, for the last line of a stuck worker
log_lines.py     log records as lines of JSON
slots.py         who a worker is to its group
transport.py     Faust's transport, without a task for what needs no waiting, or a pause where there is room
seams.py         what is used of Faust beyond its public face
settings.py faults.py
"""

from streamgauge.worker.app import create_app
from streamgauge.worker.run import Worker, run_worker
from streamgauge.worker.settings import RecordStore, Stored, WorkerMetrics, WorkerSettings

__all__ = ["RecordStore", "Stored", "Worker", "WorkerMetrics", "WorkerSettings", "create_app", "run_worker"]
