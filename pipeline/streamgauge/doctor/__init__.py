"""What would stop an installation from working: each check is a module, and gives findings with their cures.

findings.py      a finding: ok, a warning or a failure
installation.py  what the checks look at: one command with its settings
checks.py        the table of checks; runs them at once, each with a time limit
cluster.py       what the brokers say, read once for several checks
probe.py         connects to a server, with TLS, and asks it for its time
slow_stream.py   the doctor's own slow stream, for buffering.py
threads.py       calls that block

A check changes nothing: it creates no topic, sends no message, and stores no record.
"""
