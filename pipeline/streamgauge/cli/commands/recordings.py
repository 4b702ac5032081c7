"""Declarations of `replay`, `recount` and `demo`: recorded streams, and simulated ones."""

from collections.abc import Sequence

from streamgauge.cli.commands.options import file_option, option, output, paths, switch
from streamgauge.cli.parser import JSON, JSONL, TABLE, Command, Names


def _dialects() -> Sequence[str]:
    from streamgauge.core.dialects import BY_NAME  # decoders take time to import

    return ("auto", *BY_NAME)


_RECORDINGS = paths(
    "paths",
    "FILE|DIR",
    "response bodies, HAR files, vcrpy cassettes, mitmproxy flows, packet captures or a tap's spool; the content shows which",
)
_DIALECT = option(
    "--dialect", "API format of the files; auto: each content shows it", "NAME", type=Names(_dialects), default="auto"
)
REPLAY = Command(
    "replay",
    "make records of recorded streams: SSE, HAR, cassettes, packet captures",
    """\
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
""",
    (_RECORDINGS, _DIALECT, output(TABLE, JSON, JSONL)),
    module="replay",
)
RECOUNT = Command(
    "recount",
    "count output tokens of captured streams again, beside what providers reported",
    """\
examples:
  streamgauge recount recording.sse
  streamgauge recount recordings/ --output jsonl | jq 'select(.difference > 20)'
  cat recording.sse | streamgauge recount -
  streamgauge recount --kafka broker:9092 --output jsonl
      what taps captured with --capture full and the topic still holds
  streamgauge recount --output jsonl > recounts.jsonl
      what `up --capture full --text-age SECONDS` keeps in the data directory
  streamgauge recount recording.sse --tokenizer llama-3.1-8b=tokenizer.json
      an open model, by the file that it publishes (needs `pip install tokenizers`)

Counts the generated text with the public tokenizer of its model. For other models, for masked captures, and for text above
1 MiB it gives the range that recorded streams of the model version show (low, high). Tokenizers need
`pip install 'streamgauge[recount]'`; nothing is downloaded when it runs.

Exit code 1: a file is damaged or a vocabulary is missing; all other streams are counted.
""",
    (
        _RECORDINGS,
        _DIALECT,
        file_option("--vocabularies", "directory with published vocabulary files, searched before packages", "DIR"),
        output(TABLE, JSON, JSONL),
    ),
    module="recount",
)
DEMO = Command(
    "demo",
    "send simulated traffic through a real proxy, and check the records",
    """\
examples:
  streamgauge demo
      plays every scenario once, prints a summary, and exits with 0 if all results are as expected
  streamgauge demo --serve
      repeats the scenarios until Ctrl-C, with its page at http://127.0.0.1:9464/ (unless --admin says otherwise)
""",
    (switch("--serve", "repeat the scenarios until Ctrl-C"), output(TABLE, JSON)),
    module="demo",
)
