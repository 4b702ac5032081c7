"""All code that depends on internals of Faust and of its aiokafka transport: the shims. No other package imports Faust.

Each docstring names the version that the shim was written for, and the public report that would end it.
tests/worker/faust/test_assumptions.py has a test for each of these internals, which shows what a new version has broken.

app.py           the Faust app with two agents and a table: created, started and stopped, and why it crashed
consumer.py      uses Faust's consumer, beyond its public interface
store.py         the table's store, which keeps the newest entry
recovery.py      Faust's recovery of the table, made to survive an outage
delivery.py      finds messages of the changelog that were fetched and never reached the recovery
transport.py     Faust's transport, without asyncio tasks for deliveries that do not wait
group_leader.py  assigns partitions only once the topics are known
"""
