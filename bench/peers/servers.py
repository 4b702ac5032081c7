"""nginx and haproxy: one worker, no buffering, connections to the upstream kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import MissingError, Peer, free_port, started

# Where Debian puts them, which is not on everybody's PATH.
_SYSTEM = "/usr/sbin:/usr/local/sbin"

# https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive for the upstream's connections,
# https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_buffering for event streams.
_NGINX = """
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    keepalive_requests 100000000;
    upstream measured {{
        server 127.0.0.1:{upstream};
        keepalive 1024;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        location / {{
            proxy_pass http://measured;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 900s;
        }}
    }}
}}
"""

# https://docs.haproxy.org/2.6/configuration.html#option%20http-no-delay: without it small chunks wait up to 200 ms.
_HAPROXY = """
global
    nbthread 1
    maxconn 8192
defaults
    mode http
    option http-no-delay
    option http-keep-alive
    http-reuse always
    timeout connect 10s
    timeout client 900s
    timeout server 900s
frontend clients
    bind 127.0.0.1:{port} backlog 2048
    default_backend measured
backend measured
    server one 127.0.0.1:{upstream}
"""


@contextmanager
def nginx(upstream: int, directory: Path) -> Iterator[Peer]:
    """nginx in front of the upstream's port. Raises MissingError."""
    program, port = _find("nginx"), free_port()
    configuration = directory / "nginx.conf"
    configuration.write_text(_NGINX.format(directory=directory, upstream=upstream, port=port))
    command = [program, "-e", "stderr", "-p", str(directory), "-c", str(configuration)]
    with started(command, port, directory / "nginx.log") as peer:
        yield peer


@contextmanager
def haproxy(upstream: int, directory: Path) -> Iterator[Peer]:
    """haproxy in front of the upstream's port. Raises MissingError."""
    program, port = _find("haproxy"), free_port()
    configuration = directory / "haproxy.cfg"
    configuration.write_text(_HAPROXY.format(upstream=upstream, port=port))
    with started([program, "-db", "-f", str(configuration)], port, directory / "haproxy.log") as peer:
        yield peer


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=_SYSTEM)
    if found is None:
        raise MissingError(f"{name} is not installed: scripts/install_bench_peers")
    return found
