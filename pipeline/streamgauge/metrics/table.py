"""Every metric, declared once. The exporter, METRICS.md, dashboards and alert rules use this table.

To add a metric: a row in the module of its part, and its line in `observe.py` (or an `add`, a `set` or a source). Then
`python -m streamgauge.metrics.generate_docs` writes METRICS.md, and a dashboard needs a panel of it.
"""

from collections.abc import Mapping

from streamgauge.metrics.declarations import Metric, MetricSource, counter, gauge
from streamgauge.metrics.table_added_time import *  # noqa: F403 - a row is `table.NAME`, whatever its module
from streamgauge.metrics.table_added_time import ADDED_TIME_METRICS
from streamgauge.metrics.table_health import *  # noqa: F403
from streamgauge.metrics.table_health import HEALTH_METRICS
from streamgauge.metrics.table_limits import *  # noqa: F403
from streamgauge.metrics.table_limits import LIMIT_METRICS
from streamgauge.metrics.table_money import *  # noqa: F403
from streamgauge.metrics.table_money import MONEY_METRICS
from streamgauge.metrics.table_process import *  # noqa: F403
from streamgauge.metrics.table_process import PROCESS_METRICS
from streamgauge.metrics.table_streams import *  # noqa: F403
from streamgauge.metrics.table_streams import STREAM_METRICS
from streamgauge.metrics.table_taps import *  # noqa: F403
from streamgauge.metrics.table_taps import TAP_METRICS
from streamgauge.metrics.table_workers import *  # noqa: F403
from streamgauge.metrics.table_workers import WORKER_METRICS

# Metrics of the exporter itself.
LABELS_CUT = counter(
    MetricSource.SELF,
    "metric_labels_cut",
    "Observations with the label value `other`, because the label had reached its limit of values.",
    "label",
)
SOURCE_FAILURES = counter(MetricSource.SELF, "metric_source_failures", "Failures of metric sources during scrapes.")
ADMIN_REFUSED = counter(
    MetricSource.SELF,
    "admin_refused",
    "Requests that the admin port refused: without its token, limited after wrong tokens, for another host, or malformed.",
    "reason",
)
BUILD_INFO = gauge(MetricSource.SELF, "build_info", "Always 1. The label holds the version.", "1", "version")

TABLE: tuple[Metric, ...] = (
    *STREAM_METRICS,
    *MONEY_METRICS,
    *TAP_METRICS,
    *WORKER_METRICS,
    *LIMIT_METRICS,
    *ADDED_TIME_METRICS,
    *HEALTH_METRICS,
    *PROCESS_METRICS,
    LABELS_CUT,
    SOURCE_FAILURES,
    ADMIN_REFUSED,
    BUILD_INFO,
)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TABLE}
BY_COUNT: Mapping[str, Metric] = {metric.counted_as: metric for metric in TABLE if metric.counted_as is not None}
