"""The settings that Faust gets for the timing of a group."""

from pathlib import Path

from streamgauge.worker.faust.app import create_app
from streamgauge.worker.settings import WorkerSettings


def conf(**settings: float) -> object:
    return create_app(WorkerSettings("127.0.0.1:1", Path("unused"), **settings), lambda message: None, None).conf  # type: ignore


def test_idle_members_stay_and_beats_are_many_a_session() -> None:
    config = conf(session_timeout_s=20.0)
    assert config.broker_session_timeout == 20.0  # type: ignore[attr-defined]
    assert config.broker_heartbeat_interval == 2.0  # type: ignore[attr-defined]
    # A member without a message for a month must stay: after such a removal aiokafka never joins again.
    assert config.broker_max_poll_interval > 30 * 24 * 3600  # type: ignore[attr-defined]
