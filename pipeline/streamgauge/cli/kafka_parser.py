"""The options of every command that uses Kafka. There is no password option: it comes from the environment or a file."""

import argparse

TOPICS_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092 --partitions 8
  streamgauge topics describe --kafka broker:9092
"""


def kafka_options(parser: argparse.ArgumentParser) -> None:
    """Adds the brokers, their security options, and the prefix of our topics."""
    parser.add_argument("--kafka", metavar="HOST:PORT[,...]", help="bootstrap brokers")
    parser.add_argument("--topic-prefix", metavar="NAME", help="prefix of all topic names (default: streamgauge)")
    parser.add_argument(
        "--kafka-security", metavar="PROTOCOL", help="SSL, SASL_SSL or SASL_PLAINTEXT (default: PLAINTEXT)"
    )
    parser.add_argument("--kafka-ca", metavar="FILE", help="CAs to trust for brokers (PEM; default: the system's)")
    parser.add_argument("--kafka-certificate", metavar="FILE", help="client certificate for brokers (PEM)")
    parser.add_argument(
        "--kafka-key", metavar="FILE", help="private key of --kafka-certificate (default: in that file)"
    )
    parser.add_argument(
        "--kafka-mechanism",
        metavar="NAME",
        help="SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default: SCRAM-SHA-512)",
    )
    parser.add_argument("--kafka-username", metavar="NAME", help="SASL user name")
    parser.add_argument(
        "--kafka-password-file",
        metavar="FILE",
        help="file with the SASL password, read at each connection; or set STREAMGAUGE_KAFKA_PASSWORD in the environment",
    )


def create_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `topics create`."""
    kafka_options(parser)
    parser.add_argument("--partitions", metavar="N", help="partition count: a power of two, at most 64 (default: 8)")
    parser.add_argument(
        "--replicas",
        metavar="N",
        help="replicas of each new topic (default: 3, or one on each broker if there are fewer)",
    )
