"""What reads plain bytes, as nearly all are; who asks reads the others. In C, and missing where that was not built."""

from collections.abc import Callable

# Of a place (phase, what is left), and bytes from an index on, the place behind them; None unless they are plainly a body's
# middle.
follow: Callable[[int, int, bytes | memoryview, int], tuple[int, int] | None] | None
# See `_pump.pyi`.
plain_head: Callable[[bytes], tuple[int, int, bytes, int, bool, bool] | None] | None
plain_request: Callable[[bytes], tuple[bytes, int, int | None] | None] | None
try:
    from streamgauge.taps.proxy._pump import follow, plain_head, plain_request
except ImportError:  # no Linux, or no compiler when it was installed
    follow = plain_head = plain_request = None

# In place of a body's length.
UNTIL_EOF, CHUNKED = -1, -2
