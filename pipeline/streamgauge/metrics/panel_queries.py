"""Parts of the queries of panels, with the variables of the dashboard."""

UP = 'upstream=~"$upstream"'
BOTH = 'upstream=~"$upstream",model=~"$model"'
BROKEN = "stream_error|upstream_reset|timeout|truncated"
EVERY = "[$__rate_interval]"
OUTPUT = "output_text|reasoning|output_audio"


def rate(metric: str, by: str, where: str = "") -> str:
    """The rate of a counter a second, by labels."""
    return f"sum by ({by}) (rate(streamgauge_{metric}{{{where}}}{EVERY}))"


def seldom(query: str) -> str:
    """A query whose series appear only with the first event: shows zero until then instead of "No data"."""
    return f"{query} or on() vector(0)"


def quantile(share: float, metric: str, by: str = "", where: str = BOTH) -> str:
    """A quantile of a histogram, by labels."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, where)})"


def quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """Three quantiles of a histogram, each with its legend."""
    return tuple((quantile(share, metric), f"p{round(share * 100)}") for share in (0.5, 0.95, 0.99))
