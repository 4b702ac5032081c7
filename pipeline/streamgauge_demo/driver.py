"""Runs the official clients with a base URL: unmodified, without retries, one call for each scenario.

Sync and async clients share this code; they differ only in whether a result must be awaited. The clients' libraries are
imported when they are used: to import them takes more than a second, so the demo runs all clients on `clients_loop`.
"""

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from streamgauge_demo.asking import arguments
from streamgauge_demo.scenario import ClientEnd, Endpoint, Scenario
from streamgauge_demo.tally import Seen, add

# The clients require a key; it is not checked.
API_KEY = "demo"

# How long a client waits for any byte (seconds): longer than every pause of a scenario or a tap.
CLIENT_TIMEOUT_S = 60.0

# All traffic is local, so proxies of the environment must not be used. Anthropic's client reads the environment even
# with trust_env off; only mounts override it.
DIRECT: dict[str, Any] = {"trust_env": False, "mounts": dict.fromkeys(("all://", "http://", "https://"))}

# Packages of the HTTP library whose errors the clients do not wrap.
HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "httpcore2")

Watcher = Callable[[Scenario, object], None]


class Clients:
    """One client for OpenAI's formats and one for Anthropic's, both sync or both async, with their connection pools."""

    def __init__(self, *, sync: bool) -> None:
        import anthropic
        import openai

        usual: dict[str, Any] = {"api_key": API_KEY, "max_retries": 0, "timeout": CLIENT_TIMEOUT_S}
        self._openai: Any
        self._anthropic: Any
        if sync:
            self._openai = openai.OpenAI(**usual, http_client=openai.DefaultHttpxClient(**DIRECT))
            pool = anthropic.DefaultHttpxClient(**DIRECT)
            self._anthropic = anthropic.Anthropic(**usual, http_client=pool)
        else:
            self._openai = openai.AsyncOpenAI(**usual, http_client=openai.DefaultAsyncHttpxClient(**DIRECT))
            async_pool = anthropic.DefaultAsyncHttpxClient(**DIRECT)
            self._anthropic = anthropic.AsyncAnthropic(**usual, http_client=async_pool)

    def create(self, scenario: Scenario, root: str) -> Any:
        """The client's method for a scenario. `root`: base URL of the tap or the simulator, without the upstream's name."""
        if scenario.endpoint is Endpoint.MESSAGES:
            return self._anthropic.with_options(base_url=f"{root}/{scenario.upstream}").messages.create
        client = self._openai.with_options(base_url=f"{root}/{scenario.upstream}/v1")
        if scenario.endpoint is Endpoint.RESPONSES:
            return client.responses.create
        return (
            client.completions.create if scenario.endpoint is Endpoint.COMPLETIONS else client.chat.completions.create
        )

    async def close(self) -> None:
        """Closes both clients and their connections."""
        await _maybe_await(self._openai.close())
        await _maybe_await(self._anthropic.close())


async def drive(clients: Clients, scenario: Scenario, root: str, watch: Watcher | None = None) -> Seen:
    """Runs one request to its end. `watch` is called with each of the client's objects. With sync clients this blocks."""
    seen, begun = Seen(scenario.model), time.monotonic()
    try:
        result = await _maybe_await(clients.create(scenario, root)(**arguments(scenario)))
        if scenario.asks.get("stream", True):
            await _iterate(result, scenario, seen, begun, watch)
        else:
            _see(result, scenario, seen, watch)
            seen.request_id = result._request_id
    # Any error of a client is a result. A broken connection, for one, is raised by the HTTP library below the client;
    # which library that is depends on the client's version.
    except Exception as error:  # noqa: BLE001
        _fail(seen, error)
    seen.total_s = time.monotonic() - begun
    return seen


def drive_sync(scenario: Scenario, root: str, watch: Watcher | None = None) -> Seen:
    """The same with new sync clients, in a thread without an event loop."""

    async def once() -> Seen:
        clients = Clients(sync=True)
        try:
            return await drive(clients, scenario, root, watch)
        finally:
            await clients.close()

    return asyncio.run(once())


async def drive_all(
    scenarios: Iterable[Scenario],
    root: str,
    *,
    concurrency: int,
    started: Callable[[Scenario], object],
    ended: Callable[[Scenario, Seen], object],
    sync_every: int = 0,
) -> None:
    """Runs each scenario once, `concurrency` at a time, in order. Every `sync_every`-th uses a sync client in a thread (0:
    none).
    """
    clients, places = Clients(sync=False), asyncio.Semaphore(concurrency)

    async def one(number: int, scenario: Scenario) -> None:
        async with places:
            started(scenario)
            if sync_every and number % sync_every == 0:
                seen = await asyncio.to_thread(drive_sync, scenario, root)
            else:
                seen = await drive(clients, scenario, root)
            ended(scenario, seen)

    try:
        async with asyncio.TaskGroup() as group:
            for number, scenario in enumerate(scenarios):
                group.create_task(one(number, scenario))
    finally:
        await clients.close()


@contextlib.contextmanager
def clients_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own: clients import their libraries there and build their types, without a delay of
    the loop that runs the tap and its pages. At the end it cancels its tasks and waits for its threads.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def until_done() -> None:
        done = asyncio.Event()
        begun.set_result((asyncio.get_running_loop(), done))
        await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(until_done()), name="clients")
    thread.start()
    loop, done = begun.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


async def _iterate(stream: Any, scenario: Scenario, seen: Seen, begun: float, watch: Watcher | None) -> None:
    seen.request_id = stream.response.headers.get("x-request-id")
    try:
        async for item in _each(stream):
            if seen.first_s is None:
                seen.first_s = time.monotonic() - begun
            _see(item, scenario, seen, watch)
            if seen.items == scenario.leave_after:
                seen.end = ClientEnd.LEFT
                return
    finally:
        await _maybe_await(stream.close())


def _see(item: object, scenario: Scenario, seen: Seen, watch: Watcher | None) -> None:
    add(seen, scenario.endpoint, item)
    if watch:
        watch(scenario, item)


def _fail(seen: Seen, error: Exception) -> None:
    seen.error, seen.error_body = (type(error).__name__, str(error)), getattr(error, "body", None)
    response = getattr(error, "response", None)
    if response is not None and seen.request_id is None:
        seen.request_id = response.headers.get("x-request-id")
    seen.end = _end_of(error)


def _end_of(error: Exception) -> ClientEnd:
    """How the exchange ended, from the client's error. Raises any other error again: it shows a fault of the demo."""
    import anthropic
    import openai

    if isinstance(error, openai.APITimeoutError | anthropic.APITimeoutError):
        return ClientEnd.TIMEOUT
    if isinstance(error, openai.APIConnectionError | anthropic.APIConnectionError):
        return ClientEnd.CONNECTION
    if isinstance(error, openai.APIStatusError | anthropic.APIStatusError):
        # An in-band error is raised with the status of the response, which was 200.
        return ClientEnd.STATUS if error.status_code >= 300 else ClientEnd.ERROR
    if isinstance(error, openai.APIError | anthropic.APIError):
        return ClientEnd.ERROR
    if type(error).__module__.partition(".")[0] in HTTP_LIBRARIES:
        return ClientEnd.CONNECTION
    raise error


async def _each(stream: Any) -> AsyncIterator[object]:
    if hasattr(stream, "__aiter__"):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
