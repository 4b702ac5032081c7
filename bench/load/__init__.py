"""The load of `bench.tap`: an upstream that is cheap, and a client that checks what it gets.

answer.py     what is asked and what is answered, as prebuilt bytes
upstream.py   the upstream, a process: each event its own write, at a pace or as fast as they go
client.py     one thread on one epoll: bursts, paced streams, one request after another
"""
