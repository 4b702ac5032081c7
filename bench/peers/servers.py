"""nginx and haproxy, with one worker, no buffering, kept upstream connections, and verified ones if they use TLS."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

from bench.peers.peer import MissingError, Origin, Peer, started
from bench.peers.tls_upstream import UPSTREAM_NAME

# Where Debian installs them; not every user's PATH has these folders.
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
            proxy_pass {scheme}://measured;
{tls}            proxy_http_version 1.1;
            proxy_set_header Connection {connection};
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_read_timeout 900s;
        }}
    }}
}}
"""

# https://nginx.org/en/docs/http/websocket.html: the value of `Connection`, and one more header.
_NGINX_UPGRADE = "upgrade;\n            proxy_set_header Upgrade $http_upgrade"

# https://nginx.org/en/docs/http/ngx_http_proxy_module.html#proxy_ssl_verify: by default nginx verifies
# nothing and sends no name (SNI). TLS 1.3 is a default only from 1.23.4 on; all peers must use the same protocols.
_NGINX_TLS = """\
            proxy_ssl_verify on;
            proxy_ssl_trusted_certificate {ca};
            proxy_ssl_name {name};
            proxy_ssl_server_name on;
            proxy_ssl_protocols TLSv1.2 TLSv1.3;
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
    server one 127.0.0.1:{upstream}{tls}
"""

# https://docs.haproxy.org/2.6/configuration.html#5.2-verify: the certificate must be for the name that is sent (SNI).
_HAPROXY_TLS = " ssl verify required ca-file {ca} sni str({name})"


@contextmanager
def nginx(upstream: Origin, directory: Path, *, upgrades: bool = False) -> Iterator[Peer]:
    """Runs nginx in front of the upstream, with its files in `directory`. Raises MissingError.

    `upgrades`: it relays WebSockets, and nothing else.
    """
    program, port = program_of("nginx"), free_port()
    configuration = directory / "nginx.conf"
    scheme, tls = "http", ""
    if upstream.ca is not None:
        scheme, tls = "https", _NGINX_TLS.format(ca=upstream.ca, name=UPSTREAM_NAME)
    connection = _NGINX_UPGRADE if upgrades else '""'
    configuration.write_text(
        _NGINX.format(
            directory=directory, upstream=upstream.port, port=port, scheme=scheme, tls=tls, connection=connection
        )
    )
    command = [program, "-e", "stderr", "-p", str(directory), "-c", str(configuration)]
    # It listens before it starts its worker, which does all the work.
    with started(command, port, directory / "nginx.log", processes=2) as peer:
        yield peer


@contextmanager
def haproxy(upstream: Origin, directory: Path) -> Iterator[Peer]:
    """Runs haproxy in front of the upstream, with its files in `directory`. Raises MissingError."""
    program, port = program_of("haproxy"), free_port()
    configuration = directory / "haproxy.cfg"
    tls = "" if upstream.ca is None else _HAPROXY_TLS.format(ca=upstream.ca, name=UPSTREAM_NAME)
    configuration.write_text(_HAPROXY.format(upstream=upstream.port, port=port, tls=tls))
    with started([program, "-db", "-f", str(configuration)], port, directory / "haproxy.log") as peer:
        yield peer


def program_of(name: str) -> str:
    """The path of an installed program. Raises MissingError."""
    program = shutil.which(name) or shutil.which(name, path=_SYSTEM)
    if program is None:
        raise MissingError(f"{name} is not installed: apt-get install {name}")
    return program
