"""Capture inside an application's own process: what its taps note goes to an agent's recorder over a Unix socket.

    application's threads                  | the sender's thread
    capture.py   one stream: notes         | note_collector.py  notes -> messages, and what is dropped
    background_senders.py  its senders     | outbox.py      messages -> batches; recorder_client.py: the recorder's socket
    agent_location.py  the data directory  | counter_slot.py    the counters that are this process's
                                           | background_sender.py  the thread
                                           | agent.py       starts an agent where none is

The left side never waits, locks or raises: it appends to lists that the right side empties some 20 times a second. So a
SIGKILL of the application takes the reads of the last turn (FLUSH_S) with it before they were counted as seen; all others
are in the books, as a relay's are.
"""
