"""The command line. One module a command: `run(settings, args)` gives the exit code. They put the parts together.

main.py       the parsers of all commands; parser.py: what they share
*_parser.py   the parsers of commands that have commands of their own; options that several commands share
settings_sources.py   settings from flags, the environment and a file
tap_process.py tap_announcements.py   what the commands that tap share
"""
