"""Detect a stuck worker, and end it with the reason.

rules.py             when a worker is stuck
progress_probe.py    reads the worker's progress from the broker
watchdog.py          the thread that applies the rules, and ends a stuck worker: with the frames of its threads and tasks
                     in the last log line, and with a count for the metrics of the next start
"""
