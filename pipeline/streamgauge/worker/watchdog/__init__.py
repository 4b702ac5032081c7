"""Detects a worker that is stuck, and ends it with its reason.

rules.py             when a worker is stuck
progress_probe.py    what the broker says of its progress
watchdog.py          the thread that asks the rules, and ends a stuck worker
stuck_exit_counts.py how often it did, kept for the next start
stacks.py            what each thread and task did, for the last line of a stuck worker
"""
