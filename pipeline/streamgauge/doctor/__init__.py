"""Checks of an installation: each check is a function that gives findings with their cures.

checks.py          the table of checks; runs them at once, each with a time limit
contract.py        arguments and results of checks: an installation, and findings
settings.py        the settings, and the files of secrets and certificates that they name
upstreams.py       the upstreams
ports.py           the addresses on which the command listens
buffering.py       a slow stream through the tap and the proxies around it
cluster.py         reports of the brokers, read once for several checks
broker.py          the brokers, the topics and the rights
data_directory.py  the disk, the key and the counters of responses
ledger.py          the ledger
formats.py         versions of files and messages
clock.py           the clock of this host
prometheus.py      the server that scrapes this installation
probe.py           connects to a server, with TLS, and asks it for its time

A check changes nothing: it creates no topic, sends no message, and stores no record.
"""
