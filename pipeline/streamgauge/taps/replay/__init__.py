"""Replay: recordings become bundles, by the same recorder as live traffic. What a recording does not contain stays unknown.

formats.py    detects the format of a file from its content
body.py       a raw body: one file, one stream
har.py        HTTP Archives
cassette.py   cassettes of vcrpy, VCR, betamax; cassette_yaml.py: those in YAML, which need PyYAML
flows.py      mitmproxy's flows
captures.py   packet captures, by the packet tap
exchange.py   recorded exchanges, reported to a recorder as a tap reports them
spool_rows.py Streamgauge's own bundles, from a spool
files.py      the entry point: a path -> bundles for an assembler
members.py    what the readers of formats share
contract.py   the types that pass between these modules
"""

from streamgauge.taps.replay.body import CHUNK_BYTES, rechunked, replay

__all__ = ["CHUNK_BYTES", "rechunked", "replay"]
