"""Who may use the admin port: its token, what is served without it, and what no answer may do in a browser."""

import base64
from pathlib import Path

import pytest

from streamgauge.live.http_pages import LivePages
from streamgauge.live.mailbox import DirectAsk
from streamgauge.metrics.admin_access import MIN_TOKEN, Access, Token
from streamgauge.metrics.http_server import AdminServer
from tests.live.streams import Process
from tests.metrics.test_http_server import ask, serving

TOKEN = "0123456789abcdef-secret"
PAGES = ("/metrics", "/", "/streams", "/static/page.js", "/nothing")


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n"


def basic(token: str, user: str = "any") -> str:
    return f"Authorization: Basic {base64.b64encode(f'{user}:{token}'.encode()).decode()}\r\n"


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {TOKEN}",
        f"bearer  {TOKEN} ",
        f"Basic {base64.b64encode(f'prometheus:{TOKEN}'.encode()).decode()}",
        f"BASIC {base64.b64encode(f':{TOKEN}'.encode()).decode()}",
    ],
)
def test_the_token_is_accepted_as_bearer_and_as_a_password(header: str) -> None:
    assert Token(TOKEN).accepts(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        f"Token {TOKEN}",
        f"Basic {TOKEN}",
        f"Basic {base64.b64encode(TOKEN.encode()).decode()}",  # a user without a password
        f"Basic {base64.b64encode(f'{TOKEN}:'.encode()).decode()}",
        "Basic not base64",
        "Bearer \udcff\udcfe",
    ],
)
def test_everything_else_is_refused(header: str) -> None:
    assert not Token(TOKEN).accepts(header)


@pytest.mark.parametrize(
    "text", ["x" * (MIN_TOKEN - 1), "a token with blanks in it", "ä" * 20, "tab\tin a longer token"]
)
def test_a_weak_or_unusable_token_is_refused_without_being_quoted(text: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    for given in ({"text": text}, {"file": file}):
        with pytest.raises(ValueError, match="at least 16 letters") as refused:
            Token(**given)
        assert text not in str(refused.value)


def test_a_changed_file_is_used_at_once_and_an_unusable_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    token = Token(file=file)
    file.write_text("another-token-of-this-port")
    assert not token.accepts(f"Bearer {TOKEN}")
    assert token.accepts("Bearer another-token-of-this-port")
    for content in ("short", "", None):
        file.unlink() if content is None else file.write_text(content)
        assert token.accepts("Bearer another-token-of-this-port")
    assert len(caplog.messages) == 3
    assert all("the previous token stays in use" in sentence for sentence in caplog.messages)
    assert "short" not in caplog.text
    assert TOKEN not in repr(token) + repr(Token(TOKEN)) + repr(Access(Token(TOKEN)))


def test_the_comparison_is_of_values_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hmac.compare_digest` takes the same time for any two values of one length; of others it shows the length."""
    lengths = []

    def compare(one: bytes, other: bytes) -> bool:
        lengths.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("streamgauge.metrics.admin_access.hmac.compare_digest", compare)
    token = Token(TOKEN)
    assert [token.accepts(f"Bearer {text}") for text in ("", "x", TOKEN, "x" * 3000)] == [False, False, True, False]
    assert lengths == [(32, 32)] * 4


def test_without_the_token_only_health_is_served(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgauge.metrics.admin_access.DELAY_S", 0.01)

    async def test(server: AdminServer) -> None:
        for path in PAGES:
            for extra in ("", bearer("wrong-" + TOKEN), basic(""), bearer(TOKEN) * 2, f"Cookie: token={TOKEN}\r\n"):
                answer = await ask(server.address, path, extra=extra)
                assert answer.status == 401, (path, extra)
                assert answer.headers["www-authenticate"] == 'Basic realm="streamgauge", charset="UTF-8"'
                assert b"streamgauge_" not in answer.body
                assert TOKEN.encode() not in answer.body
            assert (await ask(server.address, f"{path}?token={TOKEN}")).status == 401
            assert (await ask(server.address, path, method="POST", extra="Content-Length: 0\r\n")).status == 401
        for path in ("/health/live", "/health/ready"):
            assert (await ask(server.address, path)).status == 200
            assert (await ask(server.address, path, method="HEAD")).status == 200
            assert (await ask(server.address, path, method="POST", extra="Content-Length: 0\r\n")).status == 401

    serving(test, access=Access(Token(TOKEN)), pages=LivePages(DirectAsk(Process().view)))
    assert caplog.messages == ["the admin port rejected a request without its token (401)"]


def test_with_the_token_everything_is_served() -> None:
    async def test(server: AdminServer) -> None:
        for given in (bearer(TOKEN), basic(TOKEN)):
            found = [(await ask(server.address, path, extra=given)).status for path in PAGES]
            assert found == [200, 200, 200, 200, 404]

    serving(test, access=Access(Token(TOKEN)), pages=LivePages(DirectAsk(Process().view)))


def test_a_foreign_host_is_refused_also_with_the_token() -> None:
    """A page that rebinds its name to this address has no token; one that had it would still have the wrong name."""

    async def test(server: AdminServer) -> None:
        answer = await ask(server.address, "/metrics", host="evil.example", extra=bearer(TOKEN))
        assert answer.status == 403

    serving(test, access=Access(Token(TOKEN)))


@pytest.mark.parametrize("token", [None, TOKEN])
def test_no_answer_may_load_embed_or_tell_anything(token: str | None) -> None:
    """In particular /metrics and errors, whose text may hold names that others chose."""

    async def test(server: AdminServer) -> None:
        for path in (*PAGES, "/health/live", "/streams/1"):
            headers = (await ask(server.address, path, extra=bearer(TOKEN))).headers
            policy = headers["content-security-policy"].split("; ")
            assert policy[0] == "default-src 'none'"
            assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} <= set(policy)
            assert not any("unsafe" in part or "*" in part or ":" in part for part in policy), policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert headers["server"] == "streamgauge"
            assert "access-control-allow-origin" not in headers

    access = Access(Token(token) if token else None)
    serving(test, access=access, pages=LivePages(DirectAsk(Process().view)))
