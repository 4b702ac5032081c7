"""The worker reads bundles and writes records, with Faust. Kafka delivers at least once; each stream has one distinct record.

process.py       starts, runs and stops a worker; `run_worker`
assignment.py    partitions: assigned, recovered, revoked, drained
partition.py     one partition: apply messages in order, checkpoint
partition_offsets.py   which messages of a partition are read, and whether some were missed
topic_identity.py      whether the topics are those that the state belongs to
confirmed_sender.py    sends a partition's messages, again after a failure, until all are durable
offset_commits.py      commits offsets at an interval
activity_clock.py      how a partition spends its time, by activity
readiness.py     whether each partition has an owner in the group, and the log lines about a worker's readiness
ledger_sink.py   stores the records topic in the ledger
log.py           where a partition begins and ends, and what the group has committed
log_lines.py     log records as lines of JSON
slots.py         the group member ids of a data directory
message_queue.py   messages that were received and are not processed
dead_letters.py    writes dead letters; when foreign messages stop a partition
settings.py        a worker's settings, and the interfaces that it uses
faults.py          the errors that end a worker, with their exit codes
faust/             everything that depends on Faust: nothing else imports it
watchdog/          detects a worker that is stuck, and ends it
local.py           the worker of `up`: from the spool to the ledger, without Kafka

This module imports nothing: `up` has neither Faust nor aiokafka loaded.
"""
