"""Runs a command beside one broker: `python -m tests.kafka_broker COMMAND [ARGUMENT...]`.

All test processes of a run use that broker, by KAFKA_BOOTSTRAP, and none starts its own. Where no broker can be had, the
command runs without one, and its tests skip with the reason. The exit code is the command's.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.kafka_broker.choice import session_broker
from tests.kafka_broker.jars import NoBrokerError


def main(command: list[str]) -> int:
    with TemporaryDirectory(prefix="kafka-") as directory, ExitStack() as stack:
        environment = dict(os.environ)
        try:
            environment["KAFKA_BOOTSTRAP"] = stack.enter_context(session_broker(Path(directory) / "broker"))
        except NoBrokerError as error:
            print(f"The tests run without Kafka: {error}", file=sys.stderr)
        with subprocess.Popen(command, env=environment) as process:
            while True:
                try:
                    return process.wait()
                except KeyboardInterrupt:  # the command receives Ctrl-C too, and ends by itself
                    continue


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.kafka_broker COMMAND [ARGUMENT...]")
    sys.exit(main(sys.argv[1:]))
