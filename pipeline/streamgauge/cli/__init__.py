"""The command line. Each command is a module whose `run(settings, args)` returns the exit code; it connects the parts.

main.py       one run of a command: signals, exit codes, errors
commands.py   the table of commands and of the options that are not settings (those: `settings/declarations.py`)
options.py ledger_options.py   an option that is not a setting, and those of `ledger` and `audit`
parser.py     words -> arguments, from both tables; help_text.py: the help, completion.py: what shells complete, likewise
extras.py     what commands need that a plain installation does not bring
settings_sources.py   settings from options, the environment and a file; settings.py: `config show`, `config check`
admin_port.py  the admin port of taps and workers
tap_process.py tap_announcements.py   code shared by the commands that run a tap
"""
