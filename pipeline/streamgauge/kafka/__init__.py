"""All that talks to a Kafka broker.

shipper.py         from the spool to the segments topic
topics.py          the topics and their configuration
dead_letters.py    messages that could not be read, and how they come back
security.py        which brokers, and how to connect to them: every client of Kafka is made with it
administrator.py   topics, their configuration, and the rights that we have, asked before they are needed
connection_diagnosis.py  why a broker cannot be reached, as one sentence
faults.py          the errors of all that
producer.py        an idempotent producer that is replaced after a fatal error
group_offsets.py   what a consumer group has committed
admin_requests.py  requests for which aiokafka's administrator has no method
topic_ids.py       the id of the topic that has a name now
log_throttle.py    of aiokafka's many log lines, one when the broker goes and one when it is back
"""
