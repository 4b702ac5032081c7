"""Replay: what people have recorded becomes bundles, by the same recorder as live. Nothing is invented.

formats.py    which format a file has, by its content
body.py       a raw body: one file, one stream
har.py        HTTP Archives; cassette.py cassette_yaml.py: vcrpy, VCR, betamax; flows.py tnetstring.py: mitmproxy
captures.py   packet captures, by the packet tap
exchange.py   what all of these hold, exchanges, told to a recorder as a tap tells them
spool_rows.py Streamgauge's own bundles, as a spool has them
files.py      the front door: a path -> bundles for an assembler
contract.py   what passes between them
"""

from streamgauge.taps.replay.body import CHUNK_BYTES, rechunked, replay

__all__ = ["CHUNK_BYTES", "rechunked", "replay"]
