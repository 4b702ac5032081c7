"""All code that talks to a Kafka broker.

shipper.py         sends the spool to the segments topic; decides which failures are retried, and when
topics.py          creates, compares and describes the topics
topic_settings.py  what each topic holds, and its configuration with reasons
dead_letters.py    reads and writes the dead letter topic, and sends dead letters back
security.py        broker addresses and how to connect to them; every Kafka client is created with it
administrator.py   reads topics, their ids, their configuration and this client's rights
connection_diagnosis.py  why a broker cannot be reached, as one sentence
faults.py          the errors of this package
producer.py        an idempotent producer that is replaced after a fatal error
log_reader.py      reads one partition, or the ends of each, without a consumer group
log_throttle.py    reduces aiokafka's log lines to one when the broker stops answering and one when it answers again
backoff.py         growing pauses between retries, for the shipper and for the worker's sends
shims/             everything that depends on aiokafka's insides
"""
