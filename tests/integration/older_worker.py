"""`python -m tests.integration.older_worker JSON`: a worker that only reads an earlier format of bundles."""

import sys

from streamgauge.core.capture import bundles
from streamgauge.core.capture.segments import FORMAT_VERSION
from tests.integration.worker_process import main

if __name__ == "__main__":
    bundles.FORMAT_VERSION = FORMAT_VERSION - 1  # type: ignore[attr-defined]
    sys.exit(main())
