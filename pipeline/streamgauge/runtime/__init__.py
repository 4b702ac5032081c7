"""What every command that stays needs: child processes, listening sockets, the data directory, signals, reports of bugs."""
