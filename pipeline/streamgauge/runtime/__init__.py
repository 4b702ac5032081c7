"""Parts of all long-running commands: child processes, listening sockets, the data directory, secrets, reports of bugs.

process_group.py      starts, watches, restarts and stops the processes of a tap
child.py              what a supervisor and its child processes share: settings, messages, signals, sentences
control.py            what a collector knows of its supervisor: its messages, its request to stop, its end
stopping.py           stops a command at the first signal in order, at the second at once
listeners.py          listening sockets, which the relays inherit
socket_directory.py   the private directory of the recorder's socket
data_directory.py     the data directory, and which process uses it
ownership.py          the other users who may read or change a file
secret.py             secrets of the environment or a file; redaction.py: hides passwords in sentences
certificates.py       TLS certificates, loaded again when their files change
faults.py             reports bugs that a part catches so that traffic continues
log_time.py           the time of each logged line
nearest.py            proposes the right name for a wrong one
"""
