"""The command line. Each command is a module whose `run(settings, args)` returns the exit code; it connects the parts.

main.py       one run of a command: signals, exit codes, errors
commands.py   every command: its sentence, examples, and options that are no settings (those: `settings/declarations.py`)
parser.py     what these are made of: click's commands, groups and options, with settings, help and errors of ours
completion.py   click's completion in shells, and where its scripts are installed
extras.py     what commands need that a plain installation does not bring
settings.py   `config show`, `config check`
admin_port.py  the admin port of taps and workers
tap_process.py   what the commands that run a tap share
ledgers.py ledger_watch.py   opens ledgers; what `up` and `worker` show of theirs
"""
