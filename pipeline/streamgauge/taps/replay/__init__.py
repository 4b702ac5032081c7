"""Replay: recordings become bundles, by the same recorder as live traffic. What a recording does not contain stays unknown.

formats.py    detects the format of a file from its content
body.py       a raw body: one file, one stream
har.py        HTTP Archives; cassette.py cassette_yaml.py: vcrpy, VCR, betamax; flows.py tnetstring.py: mitmproxy
captures.py   packet captures, by the packet tap
exchange.py   recorded exchanges, reported to a recorder as a tap reports them
spool_rows.py Streamgauge's own bundles, from a spool
files.py      the entry point: a path -> bundles for an assembler
contract.py   the types that pass between these modules
"""

from streamgauge.taps.replay.body import CHUNK_BYTES, rechunked, replay

__all__ = ["CHUNK_BYTES", "rechunked", "replay"]
