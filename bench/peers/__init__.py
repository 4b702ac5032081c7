"""Proxies that `bench.tap` measures, each in front of the same upstream, as their makers advise for event streams.

peer.py         a proxy that runs: its port, its processes, their cost
servers.py      nginx and haproxy, if they are installed (scripts/install_bench_peers does so)
aiohttp_proxy.py httpx_proxy.py   as one would write a proxy in Python
streamgauge.py  ours: `streamgauge tap`, with a broker
"""
