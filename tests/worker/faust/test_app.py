"""What Faust is told: what a group's timing rests on."""

from pathlib import Path

from streamgauge.worker import WorkerSettings, create_app


def conf(**settings: float) -> object:
    return create_app(WorkerSettings("127.0.0.1:1", Path("unused"), **settings), lambda message: None, None).conf  # type: ignore


def test_idle_members_stay_and_beats_are_many_a_session() -> None:
    told = conf(session_timeout_s=20.0)
    assert told.broker_session_timeout == 20.0  # type: ignore[attr-defined]
    assert told.broker_heartbeat_interval == 2.0  # type: ignore[attr-defined]
    # A month without a message is no reason to leave: aiokafka lets nobody back who has nothing to fetch.
    assert told.broker_max_poll_interval > 30 * 24 * 3600  # type: ignore[attr-defined]
