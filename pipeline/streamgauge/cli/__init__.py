"""The command line. Each command is a module whose `run(settings, args)` returns the exit code; it connects the parts.

main.py       the parsers of all commands; parser.py: the parser class
*_parser.py   the parsers of commands with subcommands; options that several commands share
settings_sources.py   settings from flags, the environment and a file
tap_process.py tap_announcements.py   code shared by the commands that run a tap
"""
