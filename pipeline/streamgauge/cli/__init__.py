"""The command line. Each command is a module whose `run(settings, args)` returns the exit code; it connects the parts.

main.py       one run of a command: signals, exit codes, errors
commands/     every command: its sentence, examples, and options that are no settings (those: `settings/declarations.py`)
parser.py     classes of commands, groups and options, made of click's: they add settings, and our help and errors
completion.py   click's completion in shells, and where its scripts are installed
extras.py     what commands need that a plain installation does not bring
tables.py     output as a table, JSON, JSON lines or CSV; shown_records.py: records as a person reads them;
              whole_file.py: writes a file that is there whole, or not at all

Commands:

up.py tap.py packets.py envoy.py worker.py   commands that run until they are stopped
top.py doctor.py settings.py   look at an installation; settings.py: `config show`, `config check`
ledger.py audit.py             records, totals, and their comparison with invoices; ledger_price.py: costs computed again
kept_audits.py audit_output.py audit_fetch.py   kept comparisons, claims; what is printed; invoices from admin APIs
ledger_show.py totals_report.py   one record; totals as a report
topics.py deadletter.py        topics and dead letters in Kafka
replay.py recount.py           recordings
demo.py assets.py rules.py     the demo; files of this version

What they share:

supervisor.py    the process of `up` and `tap`, which starts, watches and stops the others; pump_fallback.py: relays without
                 the pump
collector.py     the collector's process, with collector_settings.py: its settings; assembling.py: its delivery to a ledger;
                 shipping.py: its delivery to Kafka
first_request.py   the base URL and the curl line that a start prints; stream_lines.py: a line for each finished stream
admin_port.py    the admin port of taps and workers
kafka_options.py   how Kafka clients connect
ledgers.py       opens ledgers; ledger_watch.py: what `up` and `worker` show of theirs; stored_streams.py: the page's streams
stream_costs.py   prices, and the metrics of money; span_export.py: records as spans; tenants_file.py: the file of --tenants
settings_files.py   the files of prices, budgets and tenants, also after they have become unusable
"""
