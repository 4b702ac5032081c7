"""All that knows the insides of Faust and of its aiokafka transport. Nothing else imports Faust.

tests/worker/faust/test_assumptions.py has a test for each of these insides, which names what a new version has broken.

app.py           the Faust app: two agents and a table
lifecycle.py     the app's start and end, and why it crashed
consumer.py      what is used of Faust's consumer beyond its public interface
store.py         the table's store, which keeps the newest entry
recovery.py      Faust's recovery of the table, which an outage does not end
transport.py     Faust's transport, without a task for what needs no waiting
group_leader.py  assigning partitions only once the topics are known
"""
