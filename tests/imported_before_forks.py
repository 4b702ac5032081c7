"""What the processes import that tests start. A fork of a process that has imported this module starts at once."""

import gc

import streamgauge.cli.tap
import streamgauge.cli.up
import streamgauge.cli.worker
import streamgauge.worker.faust.app
import streamgauge.worker.process  # noqa: F401

gc.freeze()  # so that collections in a fork copy no page of what is imported
