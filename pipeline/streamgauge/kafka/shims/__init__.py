"""Shims over aiokafka's insides: its faults, and what it has no public interface for. No other module of kafka/ uses them.

Each docstring names the version that the shim was written for, and the public report that would end it. A new version of
aiokafka is checked against tests/worker/faust/test_assumptions.py, which has a test for each of these internals.

admin_requests.py  requests for which the admin client has no method: topic ids, authorized operations, committed offsets
cancelling.py      cancels tasks that may be inside aiokafka, and closes clients that such tasks were closing
connections.py     a write to a closed transport, and metadata without any broker
discarding.py      discards a producer without waiting for its messages
header_names.py    reads messages whose header names are not UTF-8
passwords.py       lets clients read a rotated password
"""
