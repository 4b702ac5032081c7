"""The page on the admin port: the streams of this process as they are now, and the worst of the last hour.

view.py         answers what the page asks: open streams, one stream's timeline, the last hour
reads.py        keeps the reads of open streams, and decodes them when a page asks
finished.py     remembers finished streams: the last hour, its worst streams, rate limits
stored.py       what the page asks of a ledger, and the filters of a request
summaries.py    percentiles, and the numbers of a process without a ledger
coverage.py     how many responses of a tap have a record
answers.py      the answers as JSON
mailbox.py      brings questions to the thread that has the assembler
tap_watch.py    assembles a tap's streams while its page is open
http_pages.py   serves the answers, and the page in `static/`

Everything is bounded (decision 33).
"""
