"""What the shipper (`kafka.py`) and the worker share of talking to a Kafka broker.

security.py   which brokers, and how they are met: the one value that every client of Kafka is made with
administrator.py  topics, their configuration, and what we may do, asked before it is done
refusal.py    why a broker cannot be had, as one sentence
faults.py     the errors of all that
producer.py   an idempotent producer that is replaced when it is beyond help
topic_ids.py  which topic it is that has a name
watch.py      aiokafka's flood of log lines, damped to one sentence when the broker goes and one when it is back
"""
