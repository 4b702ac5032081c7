"""All that knows the insides of Faust and of its aiokafka transport.

app.py           the Faust app: two agents and a table
consumer.py      what is used of Faust's consumer beyond its public interface
store.py         the table's store, which keeps the newest entry
recovery.py      Faust's recovery of the table, which an outage does not end
transport.py     Faust's transport, without a task for what needs no waiting
group_leader.py  assigning partitions only once the topics are known
"""
