"""Guesses of the admin port's token: slow, counted, and never in the way of a client at another address."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from streamgauge.metrics import admin_access
from streamgauge.metrics.admin_access import DELAY_S, MAX_ALL, MAX_KNOWN, MAX_WAITING, Access, Token, TokenGuesses
from streamgauge.metrics.http_server import AdminServer
from tests.metrics.pages import read_page
from tests.metrics.test_http_server import ask, serving
from tests.running import PATIENCE_S

TOKEN = "t0ken-0123456789abcdef"


def bearer(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n"


def test_an_address_has_few_guesses_a_second() -> None:
    """It made 2,253 a second, and as many as it has connections at a time."""

    async def test(server: AdminServer) -> None:
        async def guess(number: int) -> int:
            return (await ask(server.address, "/metrics", extra=bearer(f"guess-{number:020}"))).status

        began = time.monotonic()
        found = await asyncio.gather(*(guess(number) for number in range(40)))
        assert set(found) == {401, 429}
        took = time.monotonic() - began
        assert took >= DELAY_S
        assert found.count(401) <= MAX_WAITING * (1 + int(took / DELAY_S))
        answer = await ask(server.address, "/metrics", extra=bearer(TOKEN))
        assert answer.status == 200
        refused = read_page(answer.body)
        assert refused.total("streamgauge_admin_refused_total") == 40

    serving(test, access=Access(Token(TOKEN)))


def test_the_right_token_is_not_compared_while_its_address_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the guesses beyond the limit would tell which one is right."""

    async def test(server: AdminServer) -> None:
        over, delayed = asyncio.Event(), 0

        async def until_over(_: float) -> None:
            nonlocal delayed
            delayed += 1
            await over.wait()

        monkeypatch.setattr(admin_access, "asyncio", SimpleNamespace(sleep=until_over))
        wrong = [
            asyncio.ensure_future(ask(server.address, "/streams", extra=bearer(f"guess-{number:020}")))
            for number in range(MAX_WAITING)
        ]
        async with asyncio.timeout(PATIENCE_S):
            while delayed < MAX_WAITING:  # noqa: ASYNC110 - no event reports the end of a guess
                await asyncio.sleep(0.01)
        answer = await ask(server.address, "/metrics", extra=bearer(TOKEN))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert (await ask(server.address, "/metrics")).status == 401, "a browser that has no token yet is asked for it"
        assert (await ask(server.address, "/health/live")).status == 200
        over.set()
        assert {answer.status for answer in await asyncio.gather(*wrong)} == {401}
        assert (await ask(server.address, "/metrics", extra=bearer(TOKEN))).status == 200

    serving(test, access=Access(Token(TOKEN)))


def test_a_scraper_is_served_while_very_many_addresses_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_access, "MAX_ALL", 0)

    async def test(server: AdminServer) -> None:
        assert (await ask(server.address, "/metrics", extra=bearer(TOKEN))).status == 429
        monkeypatch.setattr(admin_access, "MAX_ALL", 1)
        assert (await ask(server.address, "/metrics", extra=bearer(TOKEN))).status == 200
        monkeypatch.setattr(admin_access, "MAX_ALL", 0)
        assert (await ask(server.address, "/metrics", extra=bearer(TOKEN))).status == 200

    serving(test, access=Access(Token(TOKEN)))


def test_addresses_are_apart_but_those_of_one_host_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_access, "DELAY_S", 60.0)

    async def run() -> None:
        guesses = TokenGuesses()
        tasks = []

        async def wrong(address: str) -> None:
            tasks.append(asyncio.ensure_future(guesses.delay(address)))
            await asyncio.sleep(0)

        for number in range(MAX_WAITING):
            await wrong("192.0.2.7")
            await wrong(f"2001:db8::{number:x}")
        assert not guesses.may_try("192.0.2.7")
        assert guesses.may_try("192.0.2.8")
        assert not guesses.may_try("2001:db8::ffff")
        assert guesses.may_try("2001:db8:0:1::1")
        for number in range(MAX_ALL):
            await wrong(f"198.51.100.{number % 256}")
        assert not guesses.may_try("192.0.2.8"), "very many addresses"
        guesses.was_right("192.0.2.9")
        assert guesses.may_try("192.0.2.9"), "others shut out a scraper"
        for number in range(MAX_KNOWN):
            guesses.was_right(f"203.0.113.{number}")
        assert not guesses.may_try("192.0.2.9"), "the known addresses are bounded"
        for _ in range(MAX_WAITING):
            await wrong("203.0.113.0")
        assert not guesses.may_try("203.0.113.0"), "a known address may guess without limit"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert guesses.may_try("192.0.2.7")

    asyncio.run(run())
