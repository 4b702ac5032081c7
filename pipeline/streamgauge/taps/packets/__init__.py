"""The packet tap: follows plain HTTP/1.1 connections in a packet capture, live or from a file. It does not forward traffic.

decode.py        one captured packet -> its TCP segment
reassembly.py    one direction of a connection: segments -> bytes in order, and losses
connections.py   both directions of a connection, and all connections of a capture
conversation.py  the HTTP on a connection; exchange.py: one request and its response, as the recorder gets it
files.py         pcap and pcapng files; capture_filter.py ring.py clock.py: the kernel's capture, its filter and its stamps
privilege.py     drops the capability when the capture is open
process.py       the process of the live capture
"""
