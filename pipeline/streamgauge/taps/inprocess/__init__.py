"""Capture inside an application's own process. Its taps make notes, which go to an agent's recorder over a Unix socket.

    application's threads                  | the sender's thread
    capture.py   one stream: notes         | note_collector.py  notes -> messages; counts what is dropped
    background_senders.py  its senders     | outbox.py      messages -> batches; recorder_client.py: the recorder's socket
    agent_location.py  the data directory  | counter_slot.py    this process's slot in the counters file
                                           | background_sender.py  the thread
                                           | agent.py       starts an agent if none runs

The application's side never waits, locks or raises: it appends to lists that the sender's thread empties about 20 times a
second. A SIGKILL of the application loses the reads noted since the last turn (FLUSH_S) before they are counted as seen.
All earlier reads are in the balance, as those of a relay are.
"""
