"""The worker: bundles in, records out, through Faust; exactly one distinct record a stream on an at-least-once log.

run.py           a worker's life; `run_worker`
app.py           the Faust app: two agents and a table
assignment.py    partitions given, recovered, taken away, drained
partition.py     one partition: apply in order, checkpoint
outbox.py        what a partition sends, and when all of it is durable
acknowledging.py offsets, committed once in a while
store.py         the table's store, which keeps the newest entry
storing.py       from the records topic to where records rest
slots.py         who a worker is to its group
seams.py         what is used of Faust beyond its public face
settings.py faults.py
"""

from streamgauge.worker.app import create_app
from streamgauge.worker.run import Worker, run_worker
from streamgauge.worker.settings import RecordStore, Stored, WorkerMetrics, WorkerSettings

__all__ = ["RecordStore", "Stored", "Worker", "WorkerMetrics", "WorkerSettings", "create_app", "run_worker"]
