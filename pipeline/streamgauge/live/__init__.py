"""The page on the admin port: the streams of this process as they are now, and the worst of the last hour.

`view.py` answers what the page asks; `reads.py` keeps and decodes the reads of open streams; `finished.py` remembers finished
streams. `mailbox.py` and `tap_watch.py` bring questions to the thread that has the assembler. `http_pages.py` serves the
answers, and the page in `static/`. Everything is bounded (decision 33).
"""
