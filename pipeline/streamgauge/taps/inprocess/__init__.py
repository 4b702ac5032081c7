"""Capture inside an application's own process. What its taps report goes to an agent's recorder over a Unix socket.

    application's threads                  | the sender's thread
    capture.py   starts a stream's capture | background_sender.py   inbox -> batches -> the recorder's socket
    inbox.py     queues what it reports    | counter_slot.py    this process's slot in the counters file
    background_senders.py  its senders     |
    agent_location.py  the data directory  |
    endings.py   what an error of a client's library says of the end

The application's side never raises, and waits for nothing but the lock of one append: it appends to a queue that the
sender's thread empties about 20 times a second. A SIGKILL of the application loses the reads queued since the last turn
(FLUSH_S), and they are not counted as seen. All earlier reads are in the balance, as those of a relay are.
"""
