"""Which content types name an event stream."""

import pytest

from streamgauge.core.http1.content_type import names_event_stream


@pytest.mark.parametrize(
    ("content_types", "says"),
    [
        (["text/event-stream"], True),
        (["Text/Event-Stream ; charset=utf-8"], True),
        (["text/event-stream, text/event-stream"], True),
        (["text/event-stream; charset=utf-8,text/event-stream"], True),
        (["application/json, text/event-stream"], True),
        (["application/json", "text/event-stream"], True),
        ([], False),
        ([""], False),
        (["text/event-streams"], False),
        (["application/json; of=text/event-stream"], False),
    ],
)
def test_f6_one_of_the_types_is_an_event_stream(content_types: list[str], says: bool) -> None:
    assert names_event_stream(content_types) is says
