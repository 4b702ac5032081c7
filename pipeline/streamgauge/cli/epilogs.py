"""What the help of each command says at its end: examples and notes."""

EPILOG = """\
examples:
  streamgauge demo
      shows what is measured, without an API key
  streamgauge up --upstream openai=https://api.openai.com
      then set the base URL of clients to http://127.0.0.1:8080/openai/v1
  streamgauge ledger query --newest --limit 10
      the latest records that `up` or a worker stored
  streamgauge replay recording.sse

`streamgauge COMMAND --help` shows the options of a command.

Each setting is an option, a variable STREAMGAUGE_<NAME> of the environment, and a key of the settings file
(--config FILE, TOML): --spool-age is STREAMGAUGE_SPOOL_AGE and spool_age; --port is short for --server-ports. An option comes
before a variable, a variable before the file. The sections Arguments and Options of a command's help list what is no setting.

Exit codes: 0 success, 1 finished and found a problem, 2 wrong usage or settings, 3 a required service is unavailable,
70 internal error, 75 a worker was stuck, 130 ended by Ctrl-C. A second signal ends a command at once, with 128 + its
number.
"""

UP_EPILOG = """\
examples:
  streamgauge up --upstream openai=https://api.openai.com
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge up --upstream http://127.0.0.1:8000 --listen 0.0.0.0:8080
      a single upstream without a name: clients use the upstream's own paths
  streamgauge up --agent
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

Metrics are at http://127.0.0.1:9464/metrics. `streamgauge ledger query` prints the records.
"""

TAP_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092
      once, before the first tap and worker
  streamgauge tap --upstream openai=https://api.openai.com --kafka broker:9092
      clients use http://127.0.0.1:8080/openai/v1
  streamgauge tap --agent --kafka broker:9092
      no proxy: receives what the httpx and ASGI integrations capture in applications with the same --data-dir

A tap forwards traffic also while no broker is available. `streamgauge worker` makes the records.
"""

PACKETS_EPILOG = """\
examples:
  streamgauge up packets --interface lo --port 8000
      records the responses of a server on this host, without Kafka
  streamgauge tap packets --interface eth0 --port vllm=8000 --kafka broker:9092
  streamgauge tap packets --pcap capture.pcap --kafka broker:9092
      `streamgauge replay capture.pcap` prints the records of a file without a broker

An interface requires Linux and the capability CAP_NET_RAW. Only plain HTTP/1.1 can be read: run it on the host of the model
server, or where TLS has ended.
"""

WORKER_EPILOG = """\
example:
  streamgauge worker --kafka broker:9092 --data-dir /var/lib/streamgauge

Metrics are at http://127.0.0.1:9465/metrics. `streamgauge ledger query` with the same --data-dir prints the records. Workers
share the partitions of the topics: start at most one for each partition.
"""

REPLAY_EPILOG = """\
examples:
  streamgauge replay recording.sse
  streamgauge replay recordings/ --output jsonl > records.jsonl
  streamgauge replay session.har tests/cassettes/ dump.flow capture.pcap
  streamgauge replay ~/.local/state/streamgauge/spool.sqlite
      what a tap captured and has not delivered
  streamgauge replay --kafka broker:9092
      what taps sent to Kafka and the topic still holds

Prints one record for each response body and each LLM exchange, in the order of the arguments (files of a directory by path),
then the records of what taps sent to Kafka.

Exit code 1: a file is damaged; all other files are replayed.
"""

RECOUNT_EPILOG = """\
examples:
  streamgauge recount recording.sse
  streamgauge recount recordings/ --output jsonl | jq 'select(.difference > 20)'
  cat recording.sse | streamgauge recount -
  streamgauge recount --kafka broker:9092 --output jsonl
      what taps captured with --capture full and the topic still holds

Counts the generated text with the public tokenizer of its model. For other models, and for masked captures, it gives the
range that recorded streams of the model version show (low, high). Tokenizers need `pip install 'streamgauge[recount]'`;
nothing is downloaded when it runs.

Exit code 1: a file is damaged or a vocabulary is missing; all other streams are counted.
"""

DEMO_EPILOG = """\
examples:
  streamgauge demo
      plays every scenario once, prints a summary, and exits with 0 if all results are as expected
  streamgauge demo --serve
      repeats the scenarios until Ctrl-C, so that you can look at the metrics
"""

AUDIT_EPILOG = """\
examples:
  streamgauge audit --invoice bill.csv --from 2026-11-01 --to 2026-12-01
      November; for a provider's usage and costs give --invoice twice
  streamgauge audit --from 2026-11-01 --to 2026-12-01 --invoice b.csv --save
      keeps the result; with --settle-days 3 it is preliminary before 2026-12-04
  streamgauge audit list
  streamgauge audit show 2 --output html > november.html
  streamgauge audit diff 1 2
      what arrived late, and what the provider issued again

The format of an invoice shows by its columns or keys. Known are OpenAI usage and costs (API and dashboard), Anthropic usage
and costs (API, analytics and Console), OpenRouter activity, and FOCUS.

The map is a TOML file with the tables [upstreams], [tenants] and [meters]; docs/guides/audit.md shows one. Without it, an
upstream is the provider of its own name, and keys are not compared.

The exit code is 0 if what is unexplained is within the tolerance and no cause but late_across_midnight occurs, 1 otherwise,
and 2 if an invoice was refused. That of `audit diff` is 1 if the runs differ.
"""

TOPICS_EPILOG = """\
examples:
  streamgauge topics create --kafka broker:9092 --partitions 8
      creating again changes nothing; exit code 1: an existing topic differs
  streamgauge topics describe --kafka broker:9092
"""

RULES_EPILOG = """\
examples:
  streamgauge rules generate > streamgauge.yml
      the rules in dashboards/prometheus/rules
  streamgauge rules generate --objective unbroken=0.995 --objective ttft=2
  streamgauge rules generate --output sloth > slo.yml
      the same objectives for Sloth, which makes rules of its own

Objectives and their defaults:
  unbroken=0.99     share of streams that no error, reset, timeout or truncation ends after they began
  ttft=5            time to the first token in seconds; a bound of its histogram's buckets
  ttft_share=0.95   share of streams that keep this time
  usage=0.9         share of completed streams that report token usage; 0: no alert
"""

ASSETS_EPILOG = """\
examples:
  streamgauge assets streamgauge-assets
      dashboards/grafana has the dashboards and their provisioning; dashboards/prometheus has the rules of the default
      objectives, and examples of prometheus.yml and alertmanager.yml; schemas has those of records and audits
"""

DEADLETTER_EPILOG = """\
examples:
  streamgauge deadletter list --kafka broker:9092 --since 3600
      the last hour
  streamgauge deadletter show 12 --kafka broker:9092
  streamgauge deadletter retry 12 13 --kafka broker:9092
  streamgauge deadletter retry --all --dry-run --kafka broker:9092
      prints what would be sent back

A dead letter is a message that a worker could not decode or process. Its number is its offset in the dead letter topic. A
dead letter that is sent back also stays in that topic until retention deletes it.
"""

TOP_EPILOG = """\
examples:
  streamgauge top
      the streams of `up`, `tap` or `demo` on this host
  streamgauge top 127.0.0.1:9465
      those of a worker
  streamgauge top https://worker-1.internal:9465 --admin-token-file token
      those of another host, whose admin port requires a token
  streamgauge top --output json | jq '.open.streams[] | select(.is_silent)'

It shows what the page at http://HOST:PORT/ shows. Ctrl-C ends it. If stdout is not a terminal, it prints once.
"""
