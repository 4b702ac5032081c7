"""The options of every command that talks to Kafka. A password is none: it comes from the environment or a file."""

import argparse


def kafka_options(parser: argparse.ArgumentParser) -> None:
    """Which brokers, how they are met, and what our topics are called."""
    parser.add_argument("--kafka", metavar="HOST:PORT[,...]", help="bootstrap brokers")
    parser.add_argument("--topic-prefix", metavar="NAME", help="first word of the topics' names (default: streamgauge)")
    parser.add_argument(
        "--kafka-security", metavar="PROTOCOL", help="SSL, SASL_SSL or SASL_PLAINTEXT (default: PLAINTEXT)"
    )
    parser.add_argument("--kafka-ca", metavar="FILE", help="authorities for brokers (PEM; default: the system's)")
    parser.add_argument("--kafka-certificate", metavar="FILE", help="shown to brokers that ask for one (PEM)")
    parser.add_argument("--kafka-key", metavar="FILE", help="its key (default: in the same file)")
    parser.add_argument(
        "--kafka-mechanism", metavar="NAME", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default: SCRAM-SHA-512)"
    )
    parser.add_argument("--kafka-username", metavar="NAME", help="who logs in")
    parser.add_argument(
        "--kafka-password-file",
        metavar="FILE",
        help="with the password, read at each connection; or STREAMGAUGE_KAFKA_PASSWORD in the environment",
    )
