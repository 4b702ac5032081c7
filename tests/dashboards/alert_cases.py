"""The cases of the alerts: what Prometheus has scraped, and which alerts that makes; no other alert may come.

Each case begins with HEALTHY, two taps and two workers at their work, and changes some of its series. Values are written as
promtool reads them, one a minute: `0+60x30` begins with 0 and grows by 60 for 30 minutes; `_` is no sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from streamgauge.metrics.table import OUTCOMES, TRANSPORT_CAUSES

# When a change comes, and when the alerts are looked at, unless a case says otherwise (minutes).
CHANGE, LOOK = 30, 60
TAPS = ("tap-1:9464", "tap-2:9464")
WORKERS = ("worker-1:9465", "worker-2:9465")
_LAST = 300

Values = Mapping[str, str | None]


@dataclass(frozen=True)
class Fired:
    """An alert that has to fire. `value`: how its texts show the value; `severity`: where one name has two."""

    labels: Mapping[str, str]
    value: str = ""
    severity: str = ""


@dataclass(frozen=True)
class Case:
    """`changes`: series with other values; None takes a series away. `fired`: what has to fire, for the alert of the case.

    `also`: alerts that may fire besides. An empty `fired` is a near miss: the alert stays silent.
    """

    name: str
    alert: str
    changes: Values
    fired: tuple[Fired, ...] = ()
    also: frozenset[str] = frozenset()
    at: int = LOOK
    minutes: int = _LAST


def _labelled(name: str, **labels: str) -> str:
    pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}" if labels else name


def tap(name: str, instance: str = TAPS[0], **labels: str) -> str:
    """A series of a tap."""
    return _labelled(name, job="tap", instance=instance, **labels)


def worker(name: str, instance: str = WORKERS[0], **labels: str) -> str:
    """A series of a worker."""
    return _labelled(name, job="worker", instance=instance, **labels)


def stream(name: str, **labels: str) -> str:
    """A series of finished streams, of the first worker."""
    return worker(f"streamgauge_{name}", **{"upstream": "nimbus", **labels})


def _healthy() -> dict[str, tuple[float, float]]:
    """By series: its first value, and how much it grows a minute."""
    found: dict[str, tuple[float, float]] = {}
    for instance in TAPS:
        found |= {
            tap(name, instance): values
            for name, values in {
                "up": (1, 0),
                "streamgauge_build_info": (1, 0),
                "streamgauge_metric_source_failures_total": (0, 0),
                "streamgauge_tap_reads_seen_total": (0, 1_000),
                "streamgauge_tap_reads_delivered_total": (0, 1_000),
                "streamgauge_tap_reads_waiting": (0, 0),
                "streamgauge_spool_bytes": (1_000, 0),
                "streamgauge_spool_limit_bytes": (1_000_000_000, 0),
                "streamgauge_spool_writes_refused": (0, 0),
                "streamgauge_tap_client_connections": (100, 0),
                "streamgauge_tap_client_connections_limit": (6_000, 0),
                "streamgauge_data_free_bytes": (5_000_000_000, 0),
                "streamgauge_data_disk_bytes": (20_000_000_000, 0),
                "streamgauge_broker_connected": (1, 0),
                "streamgauge_broker_problem": (0, 0),
                "streamgauge_clock_skew_seconds": (0.01, 0),
            }.items()
        }
        found[tap("streamgauge_tap_reads_dropped_total", instance, reason="crash")] = (0, 0)
    for number, instance in enumerate(WORKERS):
        found |= {
            worker(name, instance): values
            for name, values in {
                "up": (1, 0),
                "streamgauge_build_info": (1, 0),
                "streamgauge_metric_source_failures_total": (0, 0),
                "streamgauge_worker_broker_connected": (1, 0),
                "streamgauge_worker_partitions": (2, 0),
                "streamgauge_worker_expected_partitions": (4, 0),
                "streamgauge_worker_commits_total": (0, 100),
                "streamgauge_open_streams": (10, 0),
                "streamgauge_dead_letters_waiting": (0, 0),
                "streamgauge_log_gaps_total": (0, 0),
                "streamgauge_log_gap_messages_total": (0, 0),
                "streamgauge_bundles_total": (0, 1_000),
                "streamgauge_ledger_bytes": (1e9, 0),
                "streamgauge_ledger_limit_bytes": (1e10, 0),
            }.items()
        }
        for partition in (2 * number, 2 * number + 1):
            found[worker("streamgauge_worker_lag_messages", instance, partition=str(partition))] = (0, 0)
            found[worker("streamgauge_worker_committed_offset", instance, partition=str(partition))] = (0, 100)
        found[worker("streamgauge_ledger_rows_total", instance, result="new")] = (0, 30)
    first = "time_to_first_token_seconds"
    return found | {
        **{stream("stream_outcomes_total", outcome=one): (0, 60 if one == "completed" else 0) for one in OUTCOMES},
        **{stream("transport_errors_total", cause=cause): (0, 0) for cause in TRANSPORT_CAUSES},
        stream("stalls_total"): (0, 0),
        stream("usage_sources_total", source="final"): (0, 60),
        stream("token_events_total"): (0, 6_000),
        stream("silent_streams"): (0, 0),
        stream(f"{first}_bucket", model="gpt-4o", le="5.0"): (0, 60),
        stream(f"{first}_bucket", model="gpt-4o", le="+Inf"): (0, 60),
        stream(f"{first}_count", model="gpt-4o"): (0, 60),
    }


HEALTHY = _healthy()


def values_of(case: Case) -> dict[str, str]:
    """Every series of a case, with its values."""
    found: dict[str, str | None] = {
        series: f"{first:g}+{step:g}x{case.minutes}" for series, (first, step) in HEALTHY.items()
    }
    return {series: values for series, values in {**found, **case.changes}.items() if values is not None}


def _down(*instances: str) -> dict[str, str | None]:
    """What Prometheus has of instances that cannot be scraped any more."""
    ended: dict[str, str | None] = {}
    for instance in instances:
        for series, (first, step) in HEALTHY.items():
            if f'instance="{instance}"' in series:
                ended[series] = f"{first:g}+{step:g}x{CHANGE} stale"
                if series.startswith("up{"):
                    ended[series] = f"1x{CHANGE} 0x{_LAST}"
    return ended


def _set(series: str, value: float, before: float = 0.0) -> dict[str, str | None]:
    """A gauge that takes another value."""
    return {series: f"{before:g}x{CHANGE} {value:g}x{_LAST}"}


def _briefly(series: str, value: float, before: float = 0.0, minutes: int = 1) -> dict[str, str | None]:
    """A gauge that takes another value for less than the alert waits."""
    return {series: f"{before:g}x{CHANGE} {value:g}x{minutes} {before:g}x{_LAST}"}


def _grow(series: str, step: float) -> dict[str, str | None]:
    """A counter that grows from the start."""
    return {series: f"0+{step:g}x{_LAST}"}


def _in(job: str, instance: str, **labels: str) -> dict[str, str]:
    return {"job": job, "instance": instance, **labels}


_TAP, _WORKER = {"instance": TAPS[0]}, {"instance": WORKERS[0]}
_NIMBUS, _SANSA = {"upstream": "nimbus"}, {"upstream": "sansa"}
_MODEL = {"upstream": "nimbus", "model": "gpt-4o"}
_BOTH_JOBS_AWAY = {tap("streamgauge_broker_connected", instance): f"1x{CHANGE} 0x{_LAST}" for instance in TAPS} | {
    worker("streamgauge_worker_broker_connected", instance): f"1x{CHANGE} 0x{_LAST}" for instance in WORKERS
}
_STOPPED = {  # nothing goes on without a broker, but for the reads that come in
    series: f"{first:g}+{step:g}x{CHANGE} {first + step * CHANGE:g}x{_LAST}"
    for series, (first, step) in HEALTHY.items()
    if 'job="worker"' in series and step
}


def _outcome(outcome: str, step: float, upstream: str = "nimbus") -> dict[str, str | None]:
    return _grow(stream("stream_outcomes_total", upstream=upstream, outcome=outcome), step)


def _transport(cause: str, step: float, upstream: str = "nimbus") -> dict[str, str | None]:
    return _grow(stream("transport_errors_total", upstream=upstream, cause=cause), step)


def _sources(final: float, absent: float) -> dict[str, str | None]:
    return _grow(stream("usage_sources_total", source="final"), final) | _grow(
        stream("usage_sources_total", source="absent"), absent
    )


def _first_tokens(fast: float) -> dict[str, str | None]:
    """Of 60 streams a minute so many have their first token in time."""
    return _grow(stream("time_to_first_token_seconds_bucket", model="gpt-4o", le="5.0"), fast)


def _cached(cached_per_minute: int) -> dict[str, str | None]:
    """A day with half of 2,000 input tokens a minute from the cache, then so many."""
    tokens = "usage_tokens_total"
    return {
        stream(tokens, model="gpt-4o", kind="input_cached"): f"0+1000x1500 1500000+{cached_per_minute}x200",
        stream(tokens, model="gpt-4o", kind="input_uncached"): f"0+1000x1500 1500000+{2_000 - cached_per_minute}x200",
    }


def _cached_before_a_restart() -> dict[str, str | None]:
    """The same day; then all workers start again, and no stream reports cached tokens."""
    tokens = "usage_tokens_total"
    return {
        stream(tokens, model="gpt-4o", kind="input_cached"): "0+1000x1500 stale",
        stream(tokens, model="gpt-4o", kind="input_uncached"): "0+1000x1500 0+2000x200",
    }


# A day, and an hour after the change.
_DAY_LOOK, _DAY_LAST = 1_600, 1_700

_PRESENCE = (
    Case("a tap was killed", "TapDown", _down(TAPS[0]), (Fired(_in("tap", TAPS[0])),)),
    Case("a tap missed one scrape", "TapDown", _briefly(tap("up"), 0, 1), at=CHANGE + 1),
    Case("a target of another program is down", "TapDown", {'up{job="node",instance="n"}': f"0x{_LAST}"}),
    Case(
        "a worker was killed, and the other one has its partitions",
        "WorkerDown",
        {
            **_down(WORKERS[0]),
            worker("streamgauge_worker_partitions", WORKERS[1]): f"2x{CHANGE} 4x{_LAST}",
            **{
                worker("streamgauge_worker_lag_messages", WORKERS[1], partition=one): f"_x{CHANGE} 0x{_LAST}"
                for one in ("0", "1")
            },
        },
        (Fired(_in("worker", WORKERS[0])),),
        at=45,
    ),
    Case("a worker missed one scrape", "WorkerDown", _briefly(worker("up"), 0, 1), at=CHANGE + 1),
    Case("all workers were killed", "NoWorker", _down(*WORKERS), (Fired({}, "2"),), frozenset({"WorkerDown"}), at=45),
    Case(
        "one of two workers was killed",
        "NoWorker",
        _down(WORKERS[0]),
        also=frozenset({"WorkerDown", "PartitionsWithoutOwner"}),
        at=45,
    ),
    Case(
        "there is only `up`, which has no worker",
        "NoWorker",
        {
            series: None
            for series in HEALTHY
            if 'job="worker"' in series or series.startswith(("streamgauge_broker", "streamgauge_clock"))
        },
    ),
    Case("all taps were killed", "NoTap", _down(*TAPS), (Fired({}, "2"),), frozenset({"TapDown"}), at=45),
    Case("one of two taps was killed", "NoTap", _down(TAPS[0]), also=frozenset({"TapDown"}), at=45),
    Case(
        "nothing is scraped",
        "StreamgaugeAbsent",
        {**dict.fromkeys(HEALTHY), 'up{job="node",instance="n"}': f"1x{_LAST}"},
        (Fired({}),),
    ),
    Case(
        "one instance is scraped",
        "StreamgaugeAbsent",
        {
            **{series: None for series in HEALTHY if f'instance="{TAPS[0]}"' not in series},
        },
        also=frozenset({"NoWorker"}),
    ),
    Case(
        "a tap does not say how much disk is free",
        "TapMetricMissing",
        {tap("streamgauge_data_free_bytes"): None},
        (Fired(_in("tap", TAPS[0], metric="streamgauge_data_free_bytes")),),
    ),
    Case(
        "`up` has no metrics of a broker",
        "TapMetricMissing",
        {tap("streamgauge_broker_connected"): None, tap("streamgauge_broker_problem"): None},
    ),
    Case(
        "a worker does not count its commits",
        "WorkerMetricMissing",
        {worker("streamgauge_worker_commits_total"): None},
        (Fired(_in("worker", WORKERS[0], metric="streamgauge_worker_commits_total")),),
    ),
    Case(
        "a worker waits for its broker at the start",
        "WorkerMetricMissing",
        {
            worker("streamgauge_worker_broker_connected"): f"0x{_LAST}",
            **{
                worker(f"streamgauge_{name}"): None
                for name in ("worker_partitions", "worker_expected_partitions", "open_streams", "dead_letters_waiting")
            },
        },
        also=frozenset({"BrokerAway", "PartitionsWithoutOwner"}),
    ),
    Case(
        "no process exports outcomes",
        "StreamMetricMissing",
        {series: None for series in HEALTHY if "stream_outcomes_total" in series},
        (Fired({"metric": "streamgauge_stream_outcomes_total"}),),
        at=100,
    ),
    Case(
        "an idle system has no streams yet",
        "StreamMetricMissing",
        {series: None for series in HEALTHY if 'upstream="nimbus"' in series or "bundles" in series},
        at=100,
    ),
    Case(
        "a tap cannot read its counters at some scrapes",
        "MetricSourceFails",
        {tap("streamgauge_metric_source_failures_total"): f"0x{CHANGE} 0+1x{_LAST}"},
        (Fired(_TAP),),
    ),
    Case(
        "a worker counts new models as other",
        "MetricLabelsCut",
        {worker("streamgauge_metric_labels_cut_total", label="model"): f"0x{CHANGE} 0+3x{_LAST}"},
        (Fired({**_WORKER, "label": "model"}),),
    ),
    Case(
        "models were counted as other for five minutes, and then had room",
        "MetricLabelsCut",
        {worker("streamgauge_metric_labels_cut_total", label="model"): f"0x{CHANGE} 0+3x5 15x{_LAST}"},
        at=100,
    ),
    Case(
        "a source failed long ago",
        "MetricSourceFails",
        {tap("streamgauge_metric_source_failures_total"): f"0x{CHANGE} 7x{_LAST}"},
    ),
    Case(
        "a neighbour guesses the token of a tap",
        "AdminTokenGuessed",
        {
            tap("streamgauge_admin_refused_total", reason="token"): f"0x{CHANGE} 0+240x{_LAST}",
            tap("streamgauge_admin_refused_total", reason="limited"): f"0x{CHANGE} 0+9000x{_LAST}",
        },
        (Fired(_TAP),),
    ),
    Case(
        "one Prometheus has an old token, and a health check another Host",
        "AdminTokenGuessed",
        {
            tap("streamgauge_admin_refused_total", reason="token"): f"0x{CHANGE} 0+4x{_LAST}",
            tap("streamgauge_admin_refused_total", reason="host"): f"0x{CHANGE} 0+600x{_LAST}",
        },
    ),
)

_READS = "streamgauge_tap_reads"
# It has just the room of a small container volume, and the spool may take a gigabyte.
_SMALL_DISK = {tap("streamgauge_data_disk_bytes"): f"4e8x{_LAST}"}

_OF_TAPS = (
    Case(
        "a recorder falls behind",
        "TapDropsReads",
        {
            tap(f"{_READS}_dropped_total", reason="recorder_behind"): f"0x{CHANGE} 0+10x{_LAST}",
            tap(f"{_READS}_delivered_total"): f"0+1000x{CHANGE} 31000+990x{_LAST}",
        },
        (Fired({**_TAP, "reason": "recorder_behind"}, "100"),),
    ),
    Case(
        "a tap dropped something long ago",
        "TapDropsReads",
        {
            tap(f"{_READS}_dropped_total", reason="crash"): f"500x{_LAST}",
            tap(f"{_READS}_delivered_total"): f"-500+1000x{_LAST}",
        },
    ),
    Case(
        "reads vanish",
        "TapReadsOutOfBalance",
        {tap(f"{_READS}_delivered_total"): f"0+1000x{CHANGE} 30990+1000x{_LAST}"},
        (Fired(_TAP, "10"),),
    ),
    Case(
        "reads wait, and add up",
        "TapReadsOutOfBalance",
        {
            tap(f"{_READS}_delivered_total"): f"0+1000x{CHANGE} 30990+1000x{_LAST}",
            **_set(tap(f"{_READS}_waiting"), 10),
        },
    ),
    Case(
        "clients hold nearly all connections",
        "ClientConnectionsAlmostUsed",
        _set(tap("streamgauge_tap_client_connections"), 5_700),
        (Fired(_TAP, "95%"),),
    ),
    Case(
        "clients use many connections",
        "ClientConnectionsAlmostUsed",
        _set(tap("streamgauge_tap_client_connections"), 5_400),
    ),
    Case(
        "an agent has no clients",
        "ClientConnectionsAlmostUsed",
        _set(tap("streamgauge_tap_client_connections"), 0) | _set(tap("streamgauge_tap_client_connections_limit"), 0),
    ),
    Case(
        "the ledger fills",
        "LedgerAlmostFull",
        _set(worker("streamgauge_ledger_bytes"), 8.5e9),
        (Fired(_WORKER, "85%"),),
    ),
    Case("the ledger is nearly full, but not yet", "LedgerAlmostFull", _set(worker("streamgauge_ledger_bytes"), 7.9e9)),
    Case("the disk is full", "SpoolWritesRefused", _set(tap("streamgauge_spool_writes_refused"), 1), (Fired(_TAP),)),
    Case("one write failed", "SpoolWritesRefused", _briefly(tap("streamgauge_spool_writes_refused"), 1), at=CHANGE + 1),
    Case("the spool fills", "SpoolFillsUp", _set(tap("streamgauge_spool_bytes"), 9e8), (Fired(_TAP, "90%"),)),
    Case("the spool is nearly full, but not yet", "SpoolFillsUp", _set(tap("streamgauge_spool_bytes"), 7.9e8)),
    Case(
        "the disk has less than the spool may take",
        "DiskAlmostFull",
        _set(tap("streamgauge_data_free_bytes"), 5e8, 5e9),
        (Fired(_TAP, "476.8Mi"),),
    ),
    Case(
        "the disk has just what the spool may take",
        "DiskAlmostFull",
        _set(tap("streamgauge_data_free_bytes"), 1e9, 5e9),
    ),
    Case(
        "a disk that is smaller than the spool may be fills up",
        "DiskAlmostFull",
        {**_SMALL_DISK, tap("streamgauge_data_free_bytes"): f"3e8x{CHANGE} 1e7x{_LAST}"},
        (Fired(_TAP, "9.537Mi"),),
    ),
    Case(
        "a disk that is smaller than the spool may be has room again",
        "DiskAlmostFull",
        {**_SMALL_DISK, tap("streamgauge_data_free_bytes"): f"1e7x{LOOK - 5} 3e8x{_LAST}"},
    ),
    Case(
        "a disk has room again for the spool, but is mostly in use",
        "DiskAlmostFull",
        {tap("streamgauge_data_free_bytes"): f"1e7x{LOOK - 5} 2e9x{_LAST}"},
    ),
    Case(
        "one tap does not reach the broker",
        "BrokerAway",
        _set(tap("streamgauge_broker_connected"), 0, 1),
        (Fired(_in("tap", TAPS[0])),),
    ),
    Case(
        "the broker was killed",
        "BrokerAway",
        {**_BOTH_JOBS_AWAY, **_STOPPED},
        (
            *(Fired(_in("tap", instance)) for instance in TAPS),
            *(Fired(_in("worker", instance)) for instance in WORKERS),
        ),
    ),
    Case(
        "the broker has a new leader", "BrokerAway", _briefly(tap("streamgauge_broker_connected"), 0, 1), at=CHANGE + 1
    ),
    Case(
        "the broker refuses a tap's log-in",
        "BrokerProblem",
        {**_set(tap("streamgauge_broker_problem"), 1), **_set(tap("streamgauge_broker_connected"), 0, 1)},
        (Fired(_TAP),),
    ),
    Case("one refusal", "BrokerProblem", _briefly(tap("streamgauge_broker_problem"), 1), at=CHANGE + 1),
    Case(
        "a tap's clock is half a minute late",
        "ClockSkewed",
        _set(tap("streamgauge_clock_skew_seconds"), -30),
        (Fired(_TAP, "30s"),),
    ),
    Case("a tap's clock is nearly right", "ClockSkewed", _set(tap("streamgauge_clock_skew_seconds"), 4.9)),
)

_LAG = worker("streamgauge_worker_lag_messages", partition="0")
_LAG_MOVED = worker("streamgauge_worker_lag_messages", WORKERS[1], partition="0")
_COMMITTED = worker("streamgauge_worker_committed_offset", partition="0")
_COMMITTED_MOVED = worker("streamgauge_worker_committed_offset", WORKERS[1], partition="0")
_PARTITION = {"job": "worker", "partition": "0"}
# A partition that stands still: its messages wait, and other partitions of its worker go on.
_STANDS = {**_set(_LAG, 50), _COMMITTED: f"0+100x{CHANGE} 3000x{_LAST}"}
_NEW_WORKER = "worker-3:9465"
_OF_WORKERS = (
    Case(
        "a worker has lost a partition",
        "PartitionsWithoutOwner",
        _set(worker("streamgauge_worker_partitions"), 1, 2),
        (Fired({"job": "worker"}, "1"),),
    ),
    Case(
        "a rebalance", "PartitionsWithoutOwner", _briefly(worker("streamgauge_worker_partitions"), 0, 2), at=CHANGE + 1
    ),
    Case(
        "the lag of a partition is not exported",
        "LagNotExported",
        {_LAG: f"0x{CHANGE} stale"},
        (Fired(_in("worker", WORKERS[0]), "2"),),
    ),
    Case(
        "a partition was taken over a minute ago", "LagNotExported", {_LAG: f"0x{CHANGE} _x2 0x{_LAST}"}, at=CHANGE + 2
    ),
    Case(
        "one of two partitions of a worker commits nothing, and messages wait",
        "CommitsStandStill",
        _STANDS,
        (Fired(_PARTITION, "50"),),
    ),
    Case(
        "a partition that stands still moves to the other worker",
        "CommitsStandStill",
        {
            _LAG: f"0x{CHANGE} 50x18 stale",
            _LAG_MOVED: f"_x{CHANGE + 20} 50x{_LAST}",
            _COMMITTED: f"0+100x{CHANGE} 3000x18 stale",
            _COMMITTED_MOVED: f"_x{CHANGE + 20} 3000x{_LAST}",
        },
        (Fired(_PARTITION, "50"),),
        frozenset({"LagNotExported"}),
        at=CHANGE + 21,
    ),
    Case(
        "a partition that stood still moves to the other worker, and goes on",
        "CommitsStandStill",
        {
            _LAG: f"0x{CHANGE} 50x3 stale",
            _LAG_MOVED: f"_x{CHANGE + 5} 50x{_LAST}",
            _COMMITTED: f"0+100x{CHANGE} 3000x3 stale",
            _COMMITTED_MOVED: f"_x{CHANGE + 5} 3000+100x{_LAST}",
        },
        also=frozenset({"LagNotExported"}),
    ),
    Case(
        "a partition commits nothing, since nothing comes",
        "CommitsStandStill",
        {_COMMITTED: f"0+100x{CHANGE} 3000x{_LAST}"},
    ),
    Case(
        "messages wait for a broker that is away",
        "CommitsStandStill",
        {**_BOTH_JOBS_AWAY, **_STOPPED, **_set(_LAG, 50)},
        also=frozenset({"BrokerAway"}),
    ),
    Case("a worker has always something to do", "CommitsStandStill", _set(_LAG, 50)),
    Case("a worker does not keep up", "WorkersLagBehind", _set(_LAG, 1_200), (Fired(_WORKER, "1.2k"),)),
    Case("a restart's lag goes away", "WorkersLagBehind", {_LAG: f"0x{CHANGE} 5000-1000x5 0x{_LAST}"}, at=CHANGE + 4),
    *(
        Case(
            "a worker that lagged and waited has ended, and the other one has its partitions",
            alert,
            {
                **_down(WORKERS[0]),
                _LAG: f"5000x{CHANGE} stale",
                worker("streamgauge_dead_letters_waiting"): f"2x{CHANGE} stale",
                worker("streamgauge_worker_partitions", WORKERS[1]): f"2x{CHANGE} 4x{_LAST}",
                **{
                    worker("streamgauge_worker_lag_messages", WORKERS[1], partition=one): f"_x{CHANGE} 0x{_LAST}"
                    for one in ("0", "1")
                },
            },
            also=frozenset({"WorkerDown"}),
            at=45,
        )
        for alert in ("WorkersLagBehind", "DeadLettersWait")
    ),
    Case(
        "a worker was stuck and came back",
        "WorkerWasStuck",
        {worker("streamgauge_worker_stuck_exits_total", cause="commit", member="m-0"): f"2x{CHANGE} 3x{_LAST}"},
        (Fired({"job": "worker", "member": "m-0", "cause": "commit"}),),
    ),
    Case(
        "a worker was stuck, and another one has its slot since",
        "WorkerWasStuck",
        {
            worker("streamgauge_worker_stuck_exits_total", cause="commit", member="m-0"): f"2x{CHANGE} stale",
            worker(
                "streamgauge_worker_stuck_exits_total", WORKERS[1], cause="commit", member="m-0"
            ): f"_x{CHANGE + 1} 3x{_LAST}",
        },
        (Fired({"job": "worker", "member": "m-0", "cause": "commit"}),),
    ),
    Case(
        "a worker that was stuck long ago came back",
        "WorkerWasStuck",
        {worker("streamgauge_worker_stuck_exits_total", cause="commit", member="m-0"): f"2x{CHANGE} _x3 2x{_LAST}"},
    ),
    Case(
        "two workers that were stuck long ago have each other's slots after a restart",
        "WorkerWasStuck",
        {
            worker(
                "streamgauge_worker_stuck_exits_total", instance, cause="commit", member=f"m-{number}"
            ): f"{number + 2}x{CHANGE} stale" if number == slot else f"_x{CHANGE + 1} {number + 2}x{_LAST}"
            for slot, instance in enumerate(WORKERS)
            for number in range(2)
        },
    ),
    Case(
        "the first message that cannot be read",
        "DeadLettersArrive",
        {worker("streamgauge_dead_letters_total", stage="decode", error_class="frame"): f"_x{CHANGE} 1x{_LAST}"},
        (Fired(_WORKER),),
        at=CHANGE + 5,
    ),
    Case(
        "a worker that restarts has fewer dead letters than before, and they are new",
        "DeadLettersArrive",
        {worker("streamgauge_dead_letters_total", stage="decode", error_class="frame"): f"50x{CHANGE} _x2 20x{_LAST}"},
        (Fired(_WORKER),),
        at=CHANGE + 8,
    ),
    Case(
        "dead letters of long ago",
        "DeadLettersArrive",
        {worker("streamgauge_dead_letters_total", stage="decode", error_class="frame"): f"3x{_LAST}"},
    ),
    Case(
        "a worker restarts after dead letters of long ago",
        "DeadLettersArrive",
        {worker("streamgauge_dead_letters_total", stage="decode", error_class="frame"): f"50x{CHANGE} stale"},
        at=CHANGE + 5,
    ),
    Case(
        "the dead letter topic accepts nothing",
        "DeadLettersWait",
        _set(worker("streamgauge_dead_letters_waiting"), 2),
        (Fired(_WORKER, "2"),),
    ),
    Case(
        "a new leader took a moment",
        "DeadLettersWait",
        _briefly(worker("streamgauge_dead_letters_waiting"), 1, minutes=2),
        at=CHANGE + 2,
    ),
    Case(
        "retention was shorter than the outage",
        "LogLostMessages",
        {
            worker("streamgauge_log_gaps_total"): f"0x{CHANGE} 1x{_LAST}",
            worker("streamgauge_log_gap_messages_total"): f"0x{CHANGE} 5000x{_LAST}",
        },
        (Fired(_WORKER),),
    ),
    Case(
        "a new worker counted before its first scrape",
        "LogLostMessages",
        {
            worker("streamgauge_log_gaps_total", _NEW_WORKER): f"_x{CHANGE} 1x{_LAST}",
            worker("streamgauge_log_gap_messages_total", _NEW_WORKER): f"_x{CHANGE} 5000x{_LAST}",
        },
        (Fired({"instance": _NEW_WORKER}),),
    ),
    Case(
        "a worker that restarts finds that messages were deleted, fewer than before",
        "LogLostMessages",
        {worker("streamgauge_log_gap_messages_total"): f"5000x{CHANGE} _x2 20x{_LAST}"},
        (Fired(_WORKER),),
    ),
    Case("messages were lost long ago", "LogLostMessages", {worker("streamgauge_log_gaps_total"): f"3x{_LAST}"}),
    Case(
        "a worker restarts after messages were lost long ago",
        "LogLostMessages",
        {
            worker("streamgauge_log_gaps_total"): f"3x{CHANGE} 0x{_LAST}",
            worker("streamgauge_log_gap_messages_total"): f"5000x{CHANGE} 0x{_LAST}",
        },
    ),
    Case(
        "the ledger refuses all records",
        "LedgerStoresNothing",
        {
            worker("streamgauge_ledger_rows_total", instance, result="new"): f"0+30x{CHANGE} 900x{_LAST}"
            for instance in WORKERS
        },
        (Fired({"job": "worker"}, "600"),),
    ),
    Case(
        "one of two workers has no records to store",
        "LedgerStoresNothing",
        {worker("streamgauge_ledger_rows_total", result="new"): f"0+30x{CHANGE} 900x{_LAST}"},
    ),
    Case(
        "workers restart, and one stream finishes",
        "LedgerStoresNothing",
        {
            **dict.fromkeys(series for series in HEALTHY if "outcomes" in series or "ledger_rows" in series),
            stream("stream_outcomes_total", outcome="completed"): f"_x{CHANGE} 0x5 1x{_LAST}",
            worker("streamgauge_ledger_rows_total", result="new"): f"_x{CHANGE} 0x5 1x{_LAST}",
        },
        also=frozenset({"StreamMetricMissing"}),
        at=CHANGE + 12,
    ),
    Case(
        "another record for a known stream",
        "LedgerGetsDifferentRecords",
        {worker("streamgauge_ledger_rows_total", result="different"): f"_x{CHANGE} 1x{_LAST}"},
        (Fired(_WORKER),),
        at=CHANGE + 5,
    ),
    Case(
        "a worker that restarts has fewer different records than before, and they are new",
        "LedgerGetsDifferentRecords",
        {worker("streamgauge_ledger_rows_total", result="different"): f"50x{CHANGE} 0 20x{_LAST}"},
        (Fired(_WORKER),),
        at=CHANGE + 5,
    ),
    Case(
        "the same records come again after a crash",
        "LedgerGetsDifferentRecords",
        {worker("streamgauge_ledger_rows_total", result="same"): f"_x{CHANGE} 0+50x{_LAST}"},
    ),
    Case(
        "the receiver of spans is away",
        "SpansAreLost",
        {
            worker("streamgauge_spans_total", result="sent"): f"0+30x{CHANGE} 900x{_LAST}",
            worker("streamgauge_spans_total", result="unreachable"): f"0x{CHANGE} 0+30x{_LAST}",
        },
        (Fired(_WORKER),),
    ),
    Case(
        "spans were lost an hour ago",
        "SpansAreLost",
        {
            worker("streamgauge_spans_total", result="sent"): f"0+30x{_LAST}",
            worker("streamgauge_spans_total", result="queue_full"): f"700x{_LAST}",
        },
    ),
)

_OF_STREAMS = (
    Case(
        "a fifth of the streams break",
        "StreamsBreakMidway",
        {**_outcome("stream_error", 9), **_outcome("upstream_reset", 6)},
        (Fired(_NIMBUS, "20%", "page"), Fired(_NIMBUS, "20%", "ticket")),
    ),
    Case(
        "two of a hundred streams break",
        "StreamsBreakMidway",
        _outcome("timeout", 1.2),
        (Fired(_NIMBUS, "1.961%", "ticket"),),
    ),
    Case(
        "clients leave, and a few streams break",
        "StreamsBreakMidway",
        {**_outcome("client_abort", 60), **_outcome("stream_error", 0.6)},
    ),
    Case(
        "one of three streams at night breaks",
        "StreamsBreakMidway",
        {
            stream("stream_outcomes_total", upstream="sansa", outcome="completed"): f"0x20 1 2x{_LAST}",
            stream("stream_outcomes_total", upstream="sansa", outcome="upstream_reset"): f"0x20 1x{_LAST}",
        },
    ),
    Case(
        "a seventh of the requests is refused a connection",
        "StreamsBreakMidway",
        {**_outcome("upstream_reset", 10), **_transport("refused", 10)},
    ),
    Case(
        "nine of ten first tokens are late",
        "TimeToFirstTokenHigh",
        _first_tokens(6),
        (Fired(_MODEL, "90%", "page"), Fired(_MODEL, "90%", "ticket")),
    ),
    Case(
        "a fifth of the first tokens are late",
        "TimeToFirstTokenHigh",
        _first_tokens(48),
        (Fired(_MODEL, "20%", "ticket"),),
    ),
    Case("one of thirty first tokens is late", "TimeToFirstTokenHigh", _first_tokens(58)),
    Case(
        "an upstream refuses connections",
        "UpstreamUnreachable",
        {**_outcome("upstream_reset", 10, "sansa"), **_transport("refused", 10, "sansa")},
        (Fired(_SANSA, "100%"),),
    ),
    Case(
        "the first four requests after a start are refused a connection",
        "UpstreamUnreachable",
        {
            stream("stream_outcomes_total", upstream="sansa", outcome="upstream_reset"): f"0x{CHANGE} 4x{_LAST}",
            stream("transport_errors_total", upstream="sansa", cause="refused"): f"0x{CHANGE} 4x{_LAST}",
        },
        (Fired(_SANSA, "100%"),),
        at=CHANGE + 4,
    ),
    Case(
        "no request gets a connection, and a little more",
        "UpstreamUnreachable",
        {**_outcome("upstream_reset", 6, "sansa"), **_transport("refused", 7, "sansa")},
        (Fired(_SANSA, "100%"),),
    ),
    Case(
        "a third of the requests gets no connection",
        "UpstreamUnreachable",
        {**_outcome("upstream_reset", 30), **_transport("connect_timeout", 30)},
    ),
    Case(
        "a provider answers 429 to all",
        "ProviderAnswersErrors",
        _outcome("http_error", 10, "sansa"),
        (Fired(_SANSA, "100%"),),
    ),
    Case(
        "a provider answers 429 to half",
        "ProviderAnswersErrors",
        _outcome("http_error", 60),
    ),
    Case("streams hang", "StreamsSilent", _set(stream("silent_streams"), 8), (Fired(_NIMBUS, "8"),)),
    Case("a few streams think for long", "StreamsSilent", _set(stream("silent_streams"), 5)),
    Case(
        "a small share of many streams thinks for long",
        "StreamsSilent",
        {**_set(stream("silent_streams"), 8), **_set(worker("streamgauge_open_streams"), 90, 10)},
    ),
    Case("streams pause", "StreamsStall", _grow(stream("stalls_total"), 20), (Fired(_NIMBUS, "0.33"),)),
    Case("some streams pause", "StreamsStall", _grow(stream("stalls_total"), 11)),
    Case(
        "a gateway cuts streams",
        "StreamsTruncated",
        _outcome("truncated", 3),
        (Fired(_NIMBUS, "4.762%"),),
        frozenset({"StreamsBreakMidway"}),
    ),
    Case("one of two hundred streams is cut", "StreamsTruncated", _outcome("truncated", 0.3)),
    Case("a third reports no usage", "UsageMissing", _sources(40, 20), (Fired(_NIMBUS, "33.33%"),)),
    # What Prometheus adds at the ends of a window differs by metric: a part may come out larger than its whole.
    Case("no usage, and a little more", "UsageMissing", _sources(0, 66), (Fired(_NIMBUS, "100%"),)),
    Case(
        "streams that failed report no usage",
        "UsageMissing",
        {**_sources(60, 20), **_outcome("http_error", 20)},
    ),
    Case(
        "the cache is not used any more",
        "CacheShareFallen",
        _cached(100),
        (Fired(_MODEL, "5%"),),
        at=_DAY_LOOK,
        minutes=_DAY_LAST,
    ),
    Case(
        "the cache is not used any more since the workers were started again",
        "CacheShareFallen",
        _cached_before_a_restart(),
        (Fired(_MODEL, "0%"),),
        at=_DAY_LOOK,
        minutes=_DAY_LAST,
    ),
    Case(
        "a key has nearly used up its tokens",
        "RateLimitHeadroomLow",
        {
            **_set(stream("rate_limit_remaining", credential_id="c1", kind="tokens"), 800, 9_000),
            **_set(stream("rate_limit_limit", credential_id="c1", kind="tokens"), 10_000, 10_000),
        },
        (Fired({**_NIMBUS, "credential_id": "c1", "kind": "tokens"}, "8%"),),
    ),
    Case(
        "two keys of one upstream have a tenth left",
        "RateLimitHeadroomLow",
        {
            **_set(stream("rate_limit_remaining", credential_id="c1", kind="tokens"), 1_000, 9_000),
            **_set(stream("rate_limit_limit", credential_id="c1", kind="tokens"), 10_000, 10_000),
            **_set(stream("rate_limit_remaining", credential_id="c2", kind="requests"), 10, 90),
            **_set(stream("rate_limit_limit", credential_id="c2", kind="requests"), 100, 100),
        },
    ),
    Case("the cache is used a little less", "CacheShareFallen", _cached(600), at=_DAY_LOOK, minutes=_DAY_LAST),
)

_BUDGET = {"budget_key": "tenant", "budget_value": "river"}


def _budget(spent: float, forecast: float = 0.0) -> Values:
    """A budget of 500 USD."""
    return {
        worker("streamgauge_budget_limit_usd", **_BUDGET): f"500x{_LAST}",
        worker("streamgauge_budget_spent_usd", **_BUDGET): f"{spent:g}x{_LAST}",
        worker("streamgauge_budget_forecast_usd", **_BUDGET): f"{forecast:g}x{_LAST}",
    }


def _cost(cents_per_minute: int) -> Values:
    """A day of 2 cents a minute, then so many."""
    return {stream("upstream_cost_usd_total", side="input"): f"0+0.02x1500 30+{cents_per_minute / 100:g}x200"}


_NEW = {"model": "new-1", "cost_unknown": "no_model"}
_OF_MONEY = (
    Case(
        "an hour costs ten times as much",
        "CostAnomaly",
        _cost(20),
        (Fired(_NIMBUS, "12.00"),),
        at=_DAY_LOOK,
        minutes=_DAY_LAST,
    ),
    Case("an hour costs over twice as much", "CostAnomaly", _cost(5), at=_DAY_LOOK, minutes=_DAY_LAST),
    Case(
        "a tenth of the streams have no price",
        "PricesMissing",
        _grow(stream("unpriced_streams_total", **_NEW), 6),
        (Fired(_NIMBUS, "10%"),),
    ),
    Case("a few streams have no price", "PricesMissing", _grow(stream("unpriced_streams_total", **_NEW), 1)),
    Case(
        "no stream of an own server has a price",
        "PricesMissing",
        _grow(stream("unpriced_streams_total", model="llama", cost_unknown="no_seller"), 60),
    ),
    Case(
        "a few of the streams with usage have no price, and most of these streams have partial usage",
        "PricesMissing",
        {
            **_grow(stream("usage_sources_total", source="final"), 10),
            **_grow(stream("usage_sources_total", source="partial"), 90),
            **_grow(stream("unpriced_streams_total", **_NEW), 3),
        },
    ),
    Case("three fifths are spent", "BudgetHalfSpent", _budget(300), (Fired(_BUDGET, "60%"),)),
    Case("almost half is spent", "BudgetHalfSpent", _budget(249)),
    Case("four fifths are spent", "BudgetAlmostSpent", _budget(400), (Fired(_BUDGET, "80%"),)),
    Case("almost four fifths are spent", "BudgetAlmostSpent", _budget(399), also=frozenset({"BudgetHalfSpent"})),
    Case("more than all is spent", "BudgetSpent", _budget(510, 900), (Fired(_BUDGET, "102%"),), at=120),
    Case("almost all is spent", "BudgetSpent", _budget(499), also=frozenset({"BudgetAlmostSpent"})),
    Case("the month will cost more", "BudgetWillNotLast", _budget(100, 600), (Fired(_BUDGET, "120%"),), at=120),
    Case("the month will cost as much", "BudgetWillNotLast", _budget(100, 500), at=120),
    Case(
        "an audit found a difference",
        "BillDisagrees",
        _set(worker("streamgauge_audit_agrees"), 0, 1),
        (Fired(_in("worker", WORKERS[0])),),
    ),
    Case("an audit agrees", "BillDisagrees", {worker("streamgauge_audit_agrees"): f"1x{_LAST}"}),
    Case(
        "a tenth of the bill was not seen",
        "BilledStreamsUnseen",
        {worker("streamgauge_audit_coverage_ratio", provider="nimbus"): f"0.9x{_LAST}"},
        (Fired(_in("worker", WORKERS[0], provider="nimbus"), "90%"),),
    ),
    Case(
        "a twentieth of the bill was not seen",
        "BilledStreamsUnseen",
        {worker("streamgauge_audit_coverage_ratio", provider="nimbus"): f"0.95x{_LAST}"},
    ),
    Case(
        "the last audit was 36 days ago",
        "AuditOverdue",
        {worker("streamgauge_audit_age_seconds"): f"{36 * 86_400}+60x{_LAST}"},
        (Fired(_in("worker", WORKERS[0]), "36d 2h 0m 0s"),),
        at=120,
    ),
    Case(
        "the last audit was a month ago",
        "AuditOverdue",
        {worker("streamgauge_audit_age_seconds"): f"{31 * 86_400}+60x{_LAST}"},
        at=120,
    ),
    Case(
        "the ledger is away",
        "LedgerCannotBeRead",
        {worker("streamgauge_ledger_read_failures_total"): f"0x{CHANGE} 0+1x{_LAST}"},
        (Fired(_WORKER),),
    ),
    Case(
        "the ledger was away for a moment",
        "LedgerCannotBeRead",
        {worker("streamgauge_ledger_read_failures_total"): f"0x{CHANGE} 1x{_LAST}"},
    ),
)

CASES = (*_PRESENCE, *_OF_TAPS, *_OF_WORKERS, *_OF_STREAMS, *_OF_MONEY)
HEALTHY_CASE = Case("all is well", "", {})
