"""The load of `bench.tap`: an upstream with a low cost, and a client that checks what it receives.

answer.py     requests and responses, as prebuilt bytes
upstream.py   the upstream, a process: one write for each event, paced or as fast as possible
client.py     one thread on one epoll: bursts, paced streams, one request after another
"""
