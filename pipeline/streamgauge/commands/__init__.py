"""One module a command: `run(settings, args)` gives the exit code. They put the parts together and hold no logic."""
