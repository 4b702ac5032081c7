"""A child for the tests of the process group: `python -m tests.group_child`. Its settings say what it does.

`log`: a file that gets a line for each thing that happens. `does`: a word for each start, the last one for all further:

    stay        be ready, wait for SIGTERM or a line that requests a stop, end with 0
    deaf        be ready, take no notice of either
    fall        be ready, and end at once with 7
    refuse      say why on stderr, end with 3
    babble      say something else than ready, and stay
    shout       say a line that is longer than `ready` may be, and stay
    chat        be ready, write more to stdout than a pipe and a reader hold, and stay
    refuse-by-line  say why on stdout, as a StartFailure, end with 3
    crash       be ready, and end with 7 at a stop
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path


def main() -> int:
    settings = json.loads(sys.stdin.readline())
    log = Path(settings["log"])
    starts = log.read_text().count(f"{settings['name']} started") if log.exists() else 0
    does = settings["does"][min(starts, len(settings["does"]) - 1)]

    def say(what: str) -> None:
        with log.open("a") as file:
            file.write(f"{settings['name']} {what}\n")

    # SIGTERM stays pending until `sigwait` takes it. A handler of Python's runs only between two of its instructions: if the
    # signal came in the moment between the last of them and the system call `read`, that would go on to wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    say(f"started {os.getpid()}")
    if does == "refuse":
        return 3
    if does == "refuse-by-line":
        print(json.dumps({"sentence": "the weather is bad", "exit_code": 3}), flush=True)
        return 3
    sys.stdout.write({"babble": "hello\n", "shout": 100_000 * "x" + "\n"}.get(does, "ready\n"))
    sys.stdout.flush()
    if does == "fall":
        return 7
    if does == "chat":
        sys.stdout.write(1_000_000 * "x")
        say("chatted")
    ending = threading.Thread(target=end_with_stdin, args=(say, does == "deaf"), daemon=True)
    ending.start()
    if does == "deaf":
        ending.join()
    signal.sigwait({signal.SIGTERM})
    if does == "crash":
        os._exit(7)
    say("stopped")
    os._exit(0)  # an exit in order would wait for the thread's read


def end_with_stdin(say: Callable[[str], None], deaf: bool) -> None:
    while line := sys.stdin.readline():
        message = json.loads(line)
        if message["type"] == "status":
            say(f"status {message['serving']} {[name for name, _ in message['processes']]}")
        elif not deaf:
            os.kill(os.getpid(), signal.SIGTERM)
    say("orphaned")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
