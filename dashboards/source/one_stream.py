"""One stream: from a point of a graph to its timeline on the built-in page.

Prometheus holds no single stream, only exemplars: the id and the time of some. The timeline is on the admin port of the
process that assembled the stream.
"""

from dashboards.source.dashboard import Dashboard, Row, choice, text_field
from dashboards.source.panel import Heatmap, Query, Text, TimeSeries
from dashboards.source.queries import quantile, rate

# The address of a page: the admin port that Prometheus scrapes.
_PAGE = "http://$page"

_FIND = f"""\
- **A stream with a known id**: write it into the variable *Stream*, then open
  [its timeline]({_PAGE}/#${{stream:percentencode}}): every event, gap and stall, and the moment of the error. The same
  [as JSON]({_PAGE}/streams/${{stream:percentencode}}).
- **The worst streams of the last hour**: [the page of $page]({_PAGE}/) lists them, and each leads to its timeline.
- **A stream of a graph**: a point on the graphs below is one stream. Its tooltip has the stream id, and a link to this
  dashboard with that id.

*Page* is the address at which Prometheus scrapes a process. If your browser does not reach it, write another one into
the variable. A page has the streams of its process: with Kafka choose the worker, or the tap for streams that it sees.
"""

ONE_STREAM = Dashboard(
    name="stream",
    title="One stream",
    help="From a point of a graph to the timeline of its stream, on the built-in page of the process that assembled it.",
    variables=(
        choice(
            "page", "Page", 'label_values(streamgauge_open_streams{job=~"$job",instance=~"$instance"}, instance)'
        ).description("Host and port of the built-in page: the admin port of a worker or of `up`."),
        text_field("stream", "Stream").description("The stream id: `stream_id` of the record, and of an exemplar."),
    ),
    rows=(
        Row(
            "Its timeline",
            (
                Text(
                    title="Stream $stream",
                    help="Links to the timeline of the stream, and to the worst streams.",
                    content=_FIND,
                    height=7,
                ),
            ),
        ),
        Row(
            "Which stream?",
            (
                Heatmap(
                    title="Time to first token",
                    help="A point is one stream. High points began late.",
                    unit="s",
                    queries=(Query(rate("time_to_first_token_seconds_bucket", by="le"), "{{le}}", exemplars=True),),
                ),
                Heatmap(
                    title="Longest gap",
                    help="The longest time between successive token events of each stream. A point is one stream: high ones "
                    "stalled.",
                    unit="s",
                    queries=(Query(rate("longest_gap_seconds_bucket", by="le"), "{{le}}", exemplars=True),),
                ),
                TimeSeries(
                    title="Duration by outcome",
                    help="p95 of the time from the first byte of the request to the end. A point is one stream.",
                    unit="s",
                    width=12,
                    queries=(
                        Query(quantile(0.95, "stream_duration_seconds", by="outcome"), "{{outcome}}", exemplars=True),
                    ),
                ),
                TimeSeries(
                    title="Time per output token",
                    help="p95 of the mean time per output token of streams, without hidden reasoning. A point is one stream.",
                    unit="s",
                    width=12,
                    queries=(Query(quantile(0.95, "inter_token_latency_seconds"), "p95", exemplars=True),),
                ),
            ),
        ),
    ),
)
