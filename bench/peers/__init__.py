"""Proxies that `bench.tap` measures, in front of the same upstream, configured as their documentation advises for SSE.

peer.py         a running proxy: its port, its processes, their cost
servers.py      nginx and haproxy, if they are installed (by scripts/install_packages)
aiohttp_proxy.py httpx_proxy.py   typical proxies in Python
bare_c.py bare_relay.py   relays that only move bytes, in C and on uvloop
streamgauge.py  `streamgauge tap`, with a broker
"""
