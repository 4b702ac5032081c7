"""`python -m tests.integration.starting MODULE JSON`: runs a worker's module as `python -m MODULE JSON` does.

While it is imported no garbage is collected, as in `streamgauge worker`: that takes a tenth of a second, each time.
"""

import gc
import runpy
import sys

if __name__ == "__main__":
    gc.disable()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
