"""A child for the tests of the process group: `python -m tests.group_child`. Its settings say what it does.

`log`: a file that gets a line for each thing that happens. `does`: a word for each start, the last one for all further:

    stay        be ready, wait for SIGTERM, end with 0
    deaf        be ready, take no notice of SIGTERM
    fall        be ready, and end at once with 7
    refuse      say why on stderr, end with 3
    babble      say something else than ready, and stay
    shout       say a line that is longer than asyncio reads, and stay
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    settings = json.loads(sys.stdin.readline())
    log = Path(settings["log"])
    starts = log.read_text().count(f"{settings['name']} started") if log.exists() else 0
    does = settings["does"][min(starts, len(settings["does"]) - 1)]

    def say(what: str) -> None:
        with log.open("a") as file:
            file.write(f"{settings['name']} {what}\n")

    def stop(*_: object) -> None:
        say("stopped")
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if does == "deaf" else stop)
    say(f"started {os.getpid()}")
    if does == "refuse":
        return 3
    sys.stdout.write({"babble": "hello\n", "shout": 100_000 * "x" + "\n"}.get(does, "ready\n"))
    sys.stdout.flush()
    if does == "fall":
        return 7
    while sys.stdin.readline():
        time.sleep(0)
    say("orphaned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
