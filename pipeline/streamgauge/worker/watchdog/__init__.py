"""Detect a stuck worker, and end it with the reason.

rules.py             when a worker is stuck
progress_probe.py    reads the worker's progress from the broker
watchdog.py          the thread that applies the rules, and ends a stuck worker
stuck_exit_counts.py counts these exits, for the metrics of the next start
stacks.py            the frames of each thread and task, for the last log line of a stuck worker
"""
