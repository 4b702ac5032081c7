"""Parts of all long-running commands: child processes, listening sockets, the data directory, signals, reports of bugs."""
