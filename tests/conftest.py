"""What all tests share."""

pytest_plugins = ["tests.kafka_broker.fixtures"]
