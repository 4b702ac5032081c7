"""Declarations of `up`, `tap` and `worker`, which run until they are stopped, and of `top`, which shows their streams."""

from collections.abc import Sequence

from streamgauge.cli.commands.options import option, output, switch
from streamgauge.cli.parser import JSON, TABLE, Argument, Command, Group, Names

_AGENT = switch("--agent", "run no proxy: receive what the httpx and ASGI integrations capture in applications")

_QUIET = switch("--quiet", "print no line for each finished stream; without a terminal there is none")


def _packets(command: str) -> Command:
    return Command(
        f"{command} packets",
        f"like `{command}`, with packets of an interface or a file instead of the proxy",
        """\
examples:
  streamgauge up packets --interface lo --port 8000
      records the responses of a server on this host, without Kafka
  streamgauge tap packets --interface eth0 --port vllm=8000 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      `streamgauge replay capture.pcap` prints the records of a file without a broker

An interface requires Linux and the capability CAP_NET_RAW. Only plain HTTP/1.1 can be read: run it on the host of the model
server, or where TLS has ended.
""",
        (_QUIET,) if command == "up" else (),
        module="packets",
    )


def _envoy(command: str) -> Command:
    return Command(
        f"{command} envoy",
        f"like `{command}`, with what an Envoy proxy reports instead of the proxy",
        """\
examples:
  streamgauge up envoy
      records what an Envoy on this host reports, without Kafka
  streamgauge tap envoy --listen 0.0.0.0:8080 --workers 4 --kafka broker:9092

Envoy reports by its filter ext_proc in observability mode, and by its gRPC access log: the guide `envoy` has both
configurations. The traffic does not pass through this command.
""",
        (_QUIET,) if command == "up" else (),
        module="envoy",
    )


UP = Group(
    "up",
    "run everything on one host, without Kafka: proxy, metrics, records",
    """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use the upstream's own paths
  streamgauge up --agent
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

In a terminal each finished stream is a line on stdout: start (UTC), end of its id, model, outcome or error, time to the first
token, tokens, tokens a second, and cost. Metrics are at http://127.0.0.1:9464/metrics. `streamgauge ledger query` prints the
records.
""",
    (_AGENT, _QUIET),
    module="up",
    commands=[_packets("up"), _envoy("up")],
)
TAP = Group(
    "tap",
    "run the proxy, and send what it captures to Kafka",
    """\
examples:
  streamgauge topics create --kafka broker:9092
      once, before the first tap and worker
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge tap --agent --kafka broker:9092
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

A tap forwards traffic also while no broker is available. `streamgauge worker` makes the records.
""",
    (_AGENT,),
    module="tap",
    commands=[_packets("tap"), _envoy("tap")],
    kafka=True,
)
WORKER = Command(
    "worker",
    "make records and metrics of what taps sent to Kafka",
    """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge

Metrics are at http://127.0.0.1:9465/metrics. `streamgauge ledger query` with the same --data-dir prints the records. Workers
share the partitions of the topics: start at most one for each partition.
""",
    module="worker",
    kafka=True,
)


def _orders() -> Sequence[str]:
    from streamgauge.top.streams import SORTS

    return tuple(SORTS)


TOP = Command(
    "top",
    "show the streams of running processes, in the terminal",
    """\
examples:
  streamgauge top
      the streams of `up`, `tap` or `demo` on this host
  streamgauge top 127.0.0.1:9465
      those of a worker
  streamgauge top worker-1:9465 worker-2:9465 tap-1:9464
      one view of all workers and taps: their sums, and which process a stream is at
  streamgauge top https://worker-1.internal:9465 --admin-token-file token
      those of another host, whose admin port requires a token
  streamgauge top --once --filter outcome=broken
      one picture, for scripts
  streamgauge top --output json | jq '.open.streams[] | select(.is_silent)'

It shows what the page at http://HOST:PORT/ shows. `?` lists the keys, `q` ends it. If stdout is not a terminal, it prints
once, COLUMNS wide (160).
""",
    (
        Argument(
            "addresses",
            "HOST:PORT",
            "admin ports of `up`, `tap`, `worker` or `demo`; https://HOST:PORT with TLS  [default: 127.0.0.1:9464]",
            many=True,
        ),
        switch("--once", "print once, and end"),
        option("--interval", "seconds between updates", "SECONDS", type=float, default=2.0),
        option("--sort", "order of the streams", "NAME", type=Names(_orders), default="worst"),
        option(
            "--filter", "only streams with these words, or FIELD=WORD (id, upstream, model, outcome, tenant)", "WORDS"
        ),
        output(TABLE, JSON),
    ),
    module="top",
)
