"""What the shipper (`kafka.py`) and the worker share of talking to a Kafka broker.

producer.py   an idempotent producer that is replaced when it is beyond help
watch.py      aiokafka's flood of log lines, damped to one sentence when the broker goes and one when it is back
"""
