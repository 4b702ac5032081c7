"""`streamgauge rules generate`: the alert and recording rules for given objectives, on stdout."""

import sys

from streamgauge.cli.parser import Arguments
from streamgauge.errors import DONE, UsageFault
from streamgauge.metrics.objectives import objectives_of
from streamgauge.metrics.rule_files import prometheus_rules, sloth_specification
from streamgauge.metrics.rules import Links
from streamgauge.settings.declarations import Settings


def run(settings: Settings, args: Arguments) -> int:
    """Prints the rules, or the specification for Sloth.

    Raises UsageFault for an objective that cannot be counted, and for an address that is no URL.
    """
    try:
        objectives = objectives_of(args.objective or ())
    except ValueError as error:
        raise UsageFault(f"--objective: {error}") from None
    try:
        links = Links(args.page, args.dashboards, args.runbooks, args.ledger)
    except ValueError as error:
        raise UsageFault(str(error)) from None
    if args.output == "sloth":
        sys.stdout.write(sloth_specification(objectives, links))
    else:
        sys.stdout.write(prometheus_rules(objectives, links=links))
    return DONE
