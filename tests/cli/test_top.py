"""`streamgauge top` against a real admin port: what it prints, and what it says when nothing answers."""

import contextlib
import http.server
import io
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from streamgauge.cli.main import main
from streamgauge.cli.top import MEMBERS, AdminPort, _answer_of, _reason, bars, seconds, shown
from streamgauge.core.limits import Limits
from streamgauge.errors import DONE, UNAVAILABLE, USAGE
from streamgauge.live.answers import Responses, Uncaptured
from streamgauge.live.view import LiveView, Scope
from streamgauge.metrics.admin_access import Access, Token
from streamgauge.runtime.certificates import ServerCertificate
from streamgauge.spool.read_counters import Refusal
from streamgauge.taps.proxy.refusals import error_response
from streamgauge.taps.proxy.request import RefusedError
from tests.live.serving import Served, serving
from tests.live.shown import SILENT, busy_process, id_of, partly_priced_process, unpriced_process
from tests.live.streams import SECOND, Process, segment, token
from tests.taps.proxy.pki import make_pki

TOKEN = "0123456789abcdef-secret"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(busy_process()) as one:
        yield one


def run(*words: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(("top", *words))
    return code, printed.getvalue(), errors.getvalue()


def text_of(process: Process) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(shown(json.loads(msgspec.json.encode(process.view.overview()))))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


_PORT = AdminPort("localhost:1", "localhost", 1, None, None)


def test_it_prints_what_the_page_shows(served: Served) -> None:
    code, printed, errors = run(served.url.removeprefix("http://"))
    assert (code, errors) == (DONE, "")
    assert "3 open streams, 1 silent" in printed
    [silent] = [line for line in printed.splitlines() if id_of(SILENT) in line]
    assert "39.8 s" in silent
    assert "100 ms" in silent
    assert re.search(r"Finished since \S+Z \(\d+.*\): 37 completed, 4 upstream_reset\.", printed), printed
    assert "37 of 41 streams reported usage" in printed
    assert "Rate limit of sim, key unknown: 4 of 100 requests left, 800 of 1000 tokens left" in printed
    assert "Cost: 1.2300 USD" in printed
    assert "Budget of tenant river: 450.50 of 500.00 USD (90%)" in printed
    assert "Audit of 2026-10-01 to 2026-11-01: does not agree with the bill" in printed
    assert "Slowest first tokens (TTFT), reasoning included, since " in printed
    assert "SECRET" not in printed


def test_a_cost_that_is_not_known_is_not_0() -> None:
    assert "Cost: unknown" in text_of(unpriced_process())


def test_a_partial_sum_says_of_how_many_streams_it_is() -> None:
    assert "Cost: 0.0300 USD (1 of 2 streams)" in text_of(partly_priced_process())


def test_json_is_the_answer_of_the_process(served: Served) -> None:
    code, printed, _ = run(served.url.removeprefix("http://"), "--output", "json")
    assert code == DONE
    assert json.loads(printed)["open"]["total"] == 3


def test_without_streams_it_says_so() -> None:
    printed = text_of(Process())
    assert "No open streams now." in printed
    assert "No finished streams since 2023-11-14T22:13:20Z (0 ms)." in printed


def test_what_is_counted_since_when_and_where_the_rest_is() -> None:
    process = Process()
    process.clock.now = 3.0
    assert "No finished streams since 2023-11-14T22:13:20Z (3.0 s)." in text_of(process)
    process.view = LiveView("tap", Limits(), process.clock, process.clock.wall)
    process.clock.now = 6.0
    said = "No finished streams since 2023-11-14T22:13:23Z (3.0 s). A tap counts only while it is asked: the admin ports of"
    assert said in text_of(process)
    process.view.load([], process.clock.wall() - 3_600)
    process.clock.now = 4_000.0
    assert "No finished streams in the last hour. A tap" in text_of(process)


def test_the_share_of_responses_with_a_record() -> None:
    process = Process()
    process.view.responses = lambda: Responses(8, 5, [Uncaptured("a", "not_llm", 2), Uncaptured("b", "not_llm", 1)])
    assert "Responses with a record: 5 of 8 (62.5%); without: 3 not_llm" in text_of(process)


def test_a_worker_names_its_partitions_or_why_it_has_none() -> None:
    process = Process()
    process.view.scope = lambda: Scope({0: process.assembler, 4: process.assembler}, partitioned=True)
    assert "only its partitions 0, 4" in text_of(process)
    assert "Other workers have the streams of other partitions." in text_of(process)
    process.view.scope = lambda: Scope({}, partitioned=True, unready="its consumer group is rebalancing")
    assert "no partitions now (its consumer group is rebalancing)" in text_of(process)


def test_an_answer_cannot_move_the_cursor() -> None:
    """A port that another program serves may answer anything."""
    hostile = json.dumps({"error": "\x1b[2Jno\u202e"})
    assert _reason(hostile) == _reason("\x1b[2Jno\u202e") == r"\u001b[2Jno\u202e"
    answer = _answer_of(json.dumps({**dict.fromkeys(MEMBERS), "open": [{"model": "a\x1b]0;x\x07\u202e"}]}), _PORT)
    assert answer["open"] == [{"model": r"a\u001b]0;x\u0007\u202e"}]


def test_names_from_providers_are_no_markup() -> None:
    process = Process()
    first = segment(1, 0, [token(0)])
    assert first.request is not None
    process.take(
        [msgspec.structs.replace(first, request=msgspec.structs.replace(first.request, model="[red]m[/red]"))], SECOND
    )
    assert "[red]m[/red]" in text_of(process)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("127.0.0.1:1",), UNAVAILABLE, "nothing answers at 127.0.0.1:1"),
        (("nowhere",), USAGE, "write HOST:PORT"),
        (("--interval", "0"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
        (("--interval", "nan"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
        (("--interval", "inf"), USAGE, "--interval is out of range: give 0.2 to 86400 seconds"),
    ],
)
def test_what_is_wrong_is_one_sentence(words: tuple[str, ...], code: int, sentence: str) -> None:
    found, printed, errors = run(*words)
    assert (found, printed) == (code, "")
    assert sentence in errors
    assert errors.count("\n") == 1


def test_another_server_is_named(served: Served) -> None:
    address = served.url.removeprefix("http://")
    original = served.process.view.overview
    try:
        served.process.view.overview = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]
        code, _, errors = run(address)
    finally:
        served.process.view.overview = original  # type: ignore[method-assign]
    assert code == UNAVAILABLE
    assert f"{address} answered 500: internal error" in errors


def test_bars_and_seconds() -> None:
    assert bars([0] * 57 + [1, 1, 1], 3) == " " * 19 + "█"
    assert bars([1] + [0] * 59, 30) == "▁" + " " * 19
    assert bars(None, 1) == "-"
    assert [seconds(value) for value in (None, 0.0, 0.1234, 12.34, 125.0, 90, 119.7, 3599, 59.97)] == [
        "-",
        "0 ms",
        "123 ms",
        "12.3 s",
        "2 min 5 s",
        "1 min 30 s",
        "2 min 0 s",
        "59 min 59 s",
        "1 min 0 s",
    ]


def followed(served: Served, monkeypatch: pytest.MonkeyPatch, at_pause: Callable[[int], None]) -> str:
    """What a terminal shows until Ctrl-C in the third pause. `at_pause`: called with the number of the pause, from 1."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        at_pause(len(pauses))
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("streamgauge.cli.top.time.sleep", sleep)
    shown_on = io.StringIO()
    console = Console(width=140, height=30, force_terminal=True, file=shown_on)
    monkeypatch.setattr("streamgauge.cli.top.Console", lambda **_: console)
    code, _, errors = run(served.url.removeprefix("http://"), "--interval", "0.5")
    assert (code, errors, pauses) == (DONE, "", [0.5] * 3)
    return shown_on.getvalue()


def test_on_a_terminal_it_follows_until_ctrl_c(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    text = followed(served, monkeypatch, lambda _: None)
    assert text.count("3 open streams, 1 silent") >= 3


def test_a_failed_answer_is_shown_and_the_next_one_is_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that restarts ended the view. Without a first answer there is nothing to follow."""
    original = served.process.view.overview

    def fail_once(pause: int) -> None:
        served.process.view.overview = original if pause > 1 else lambda *_: 1 / 0  # type: ignore[method-assign, assignment]

    text = followed(served, monkeypatch, fail_once)
    assert text.count("answered 500: internal error") == 1
    assert text.count("3 open streams, 1 silent") >= 3
    assert run("127.0.0.1:1")[0] == UNAVAILABLE


def test_a_tall_terminal_asks_for_no_more_rows_than_it_gets(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.cli.top.time.sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    console = Console(width=140, height=1_000, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr("streamgauge.cli.top.Console", lambda **_: console)
    assert run(served.url.removeprefix("http://"))[0] == DONE


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b"{}", b'{"open": 1}'])
@pytest.mark.parametrize("words", [(), ("--output", "json")], ids=["view", "json"])
def test_another_program_s_answer_is_one_sentence(body: bytes, words: tuple[str, ...]) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        address = f"127.0.0.1:{server.server_port}"
        code, printed, errors = run(address, *words)
        answering.join()
    assert (code, printed) == (UNAVAILABLE, "")
    assert f"{address} is another program's" in errors


def test_a_port_with_a_token_and_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pki, file = make_pki(tmp_path), tmp_path / "token"
    file.write_text(TOKEN)
    access = Access(Token(TOKEN), ServerCertificate(pki.server, None))
    monkeypatch.delenv("STREAMGAUGE_ADMIN_TOKEN", raising=False)
    with serving(busy_process(), access) as served:
        authority = ("--admin-ca", str(pki.ca))
        code, printed, errors = run(served.url, *authority, "--admin-token-file", str(file))
        assert (code, errors) == (DONE, "")
        assert "3 open streams" in printed
        monkeypatch.setenv("STREAMGAUGE_ADMIN_TOKEN", TOKEN)
        assert run(served.url, *authority)[0] == DONE
        code, _, errors = run(served.url, *authority)
        assert code == UNAVAILABLE
        assert "answered 401: the admin port requires its token" in errors
        assert "(--admin-token-file FILE)" in errors
        code, _, errors = run(served.url, "--admin-token-file", str(file))
        assert (code, "nothing answers" in errors) == (UNAVAILABLE, True)
        assert run(served.url.removeprefix("https://"), "--admin-token-file", str(file))[0] == UNAVAILABLE
        assert TOKEN not in errors


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ftp://127.0.0.1:1",), "write HOST:PORT or https://HOST:PORT"),
        (("127.0.0.1:1", "--admin-ca", "/nowhere.pem"), "--admin-ca has no effect without TLS"),
        (("https://127.0.0.1:1", "--admin-ca", "/nowhere.pem"), "the CA file /nowhere.pem cannot be used"),
        (("https://127.0.0.1",), "HOST:PORT"),
    ],
)
def test_wrong_addresses_and_authorities(words: tuple[str, ...], says: str) -> None:
    code, _, errors = run(*words)
    assert code == USAGE
    assert says in errors


def test_the_port_for_clients_is_named_as_such() -> None:
    refused = error_response(RefusedError(Refusal.UNKNOWN_UPSTREAM, "No upstream has this name."))
    body = refused.partition(b"\r\n\r\n")[2].decode()
    assert _reason(body) == "this is the port for clients: give the admin port (--admin, 127.0.0.1:9464 by default)"
    assert _reason('{"error":{"message":"no such route","type":"another"}}') == "no such route"
    assert _reason('{"error":{"type":"another"}}') == '{"error":{"type":"another"}}'
