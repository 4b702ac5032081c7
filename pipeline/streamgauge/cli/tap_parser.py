"""The options of taps, and those that taps share with other commands."""

import argparse


def tap_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a tap that relays, or of an agent."""
    parser.add_argument(
        "--upstream",
        action="append",
        metavar="NAME=URL",
        help="provider endpoint, served at /NAME/...; repeatable; a single URL without NAME is served without a prefix "
        "and named by its host",
    )
    parser.add_argument(
        "--agent", action="store_true", help="relay nothing: record what taps in applications capture (httpx, ASGI)"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="address for clients (default: 127.0.0.1:8080)")
    parser.add_argument(
        "--connect-timeout", metavar="SECONDS", help="time limit to connect to an upstream (default: 10)"
    )
    parser.add_argument("--tls-certificate", metavar="FILE", help="serve clients over TLS (PEM; reloaded on change)")
    parser.add_argument("--tls-key", metavar="FILE", help="private key of --tls-certificate (default: in that file)")
    parser.add_argument("--upstream-ca", metavar="FILE", help="additional CAs to trust for https upstreams (PEM)")
    parser.add_argument("--upstream-certificate", metavar="FILE", help="client certificate for https upstreams (PEM)")
    parser.add_argument(
        "--upstream-key", metavar="FILE", help="private key of --upstream-certificate (default: in that file)"
    )
    parser.add_argument(
        "--pump", metavar="WHEN", help="auto or off: forward responses in native C code if it was built (default: auto)"
    )
    parser.add_argument(
        "--max-request-head", metavar="BYTES", help="answer larger request headers with 431 (default: 64 KiB)"
    )
    parser.add_argument(
        "--max-request-body", metavar="BYTES", help="answer larger request bodies with 413 (default: no limit)"
    )
    parser.add_argument("--max-connections", metavar="N", help="limit of client connections; more wait (default: 6000)")
    parser.add_argument(
        "--max-connections-per-address",
        metavar="N",
        help="limit of client connections from one address; more are closed (default: 3/4 of all)",
    )
    capture_options(parser)


def capture_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of every tap, including the packet tap."""
    admin_options(parser)
    data_dir_option(parser)
    parser.add_argument("--capture", choices=["masked", "full"], help="redact or keep generated text (default: masked)")
    parser.add_argument("--spool-bytes", metavar="BYTES", help="size limit of the spool on disk (default: 1 GiB)")
    parser.add_argument(
        "--spool-policy",
        metavar="POLICY",
        help="drop-newest or drop-oldest: the reads to discard when the spool is full (default: drop-newest)",
    )
    parser.add_argument(
        "--spool-age", metavar="SECONDS", help="discard reads that are not delivered after this time (default: 3 days)"
    )
    parser.add_argument("--tenant-header", metavar="NAME", help="request header that names the tenant")
    parser.add_argument(
        "--tenants",
        metavar="FILE",
        help="TOML file of lines credential_id = tenant; `ledger query --by credential_id` lists the ids",
    )
    parser.add_argument(
        "--upstream-idle-timeout", metavar="SECONDS", help="end a stream after this time without a byte (default: 900)"
    )
    parser.add_argument(
        "--drain-timeout", metavar="SECONDS", help="time limit for open streams after SIGTERM (default: 30)"
    )


def admin_options(parser: argparse.ArgumentParser, default: str = "127.0.0.1:9464") -> None:
    """Adds the options of every command with an admin port."""
    parser.add_argument("--admin", metavar="HOST:PORT", help=f"address of metrics and health (default: {default})")
    parser.add_argument(
        "--admin-host",
        action="append",
        metavar="NAME",
        help="additional Host header that the admin port accepts; needed if Prometheus scrapes by name; repeatable",
    )


def data_dir_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option of every command with a data directory."""
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="directory for spool, ledger and keys (default: the user's state directory)",
    )
