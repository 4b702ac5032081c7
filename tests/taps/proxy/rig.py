"""Real parts for the relay's tests: raw upstreams and raw clients on sockets, a recorder on a Unix socket."""

import asyncio
import contextlib
import re
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import uvloop

from streamgauge.recorder.protocol import (
    CallEnded,
    ExchangeEnding,
    Message,
    ResponseRead,
    ResponseReads,
    decode_batch,
)
from streamgauge.spool.read_counters import Incident, read_incidents
from streamgauge.taps.proxy.relay import Relay, serve
from streamgauge.taps.proxy.relay_settings import RelaySettings

# How long a test waits for what must come (seconds): generous, since the machine is shared.
PATIENCE_S = 20.0

# The events of most answers.
EVENTS = [b"data: %d\n\n" % number for number in range(20)]

Handler = Callable[[socket.socket], None]
Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=Message)


def apart(messages: Sequence[Message]) -> list[Message]:
    """Messages with each read in a message of its own."""
    found: list[Message] = []
    for message in messages:
        if isinstance(message, ResponseReads):
            found += [ResponseRead(message.stream, read.at_ns, read.data) for read in message.reads]
        else:
            found.append(message)
    return found


class RawUpstream:
    """Accepts, and runs the handler of each connection in a thread: the n-th connection gets the n-th handler, all
    further ones the last. `heads` and `bodies` are what `receive` read, in order.
    """

    def __init__(self, *handlers: Handler) -> None:
        self.connections = 0
        self.faults: list[AssertionError] = []
        self._handlers = handlers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "RawUpstream":
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listening.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for one in self._open:
            one.close()
        assert not self.faults, self.faults

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            one.settimeout(PATIENCE_S)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handler = self._handlers[min(self.connections, len(self._handlers) - 1)]
            self.connections += 1
            self._open.append(one)
            thread = threading.Thread(target=self._serve, args=(handler, one))
            self._threads.append(thread)
            thread.start()

    def _serve(self, handler: Handler, one: socket.socket) -> None:
        try:
            handler(one)
        except OSError:
            return
        except AssertionError as fault:
            self.faults.append(fault)


def receive_head(one: socket.socket) -> bytes:
    """A head, byte for byte, with its blank line; shorter if the other side ended."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and (byte := one.recv(1)):
        head += byte
    return head


def receive_request(one: socket.socket) -> bytes:
    """A head, and the body by its Content-Length; empty if the other side ended."""
    head = receive_head(one)
    length = re.search(rb"(?i)\ncontent-length: ([0-9]+)\r", head)
    return head + (receive(one, int(length[1])) if length else b"")


def receive(one: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes, or fewer if the other side ended."""
    data = bytearray()
    while len(data) < size and (piece := one.recv(min(65536, size - len(data)))):
        data += piece
    return bytes(data)


def receive_all(one: socket.socket) -> bytes:
    """Everything until the other side ends. Raises ConnectionResetError if it resets."""
    data = bytearray()
    while piece := one.recv(65536):
        data += piece
    return bytes(data)


def receive_until_reset(one: socket.socket) -> tuple[bytes, bool]:
    """Everything until the other side ends or resets, and whether it was a reset."""
    data = bytearray()
    try:
        while piece := one.recv(65536):
            data += piece
    except ConnectionResetError:
        return bytes(data), True
    return bytes(data), False


def reset(one: socket.socket) -> None:
    """Closes with RST."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def answering(*answers: bytes, end: str = "") -> Handler:
    """A handler that reads a request and sends the next response; at last it `end`s: "", "fin" or "reset"."""

    def handler(one: socket.socket) -> None:
        for answer in answers:
            if not receive_request(one):
                return
            one.sendall(answer)
        if end == "reset":
            time.sleep(0.05)
            reset(one)
        elif end == "fin":
            one.close()
        else:
            receive_all(one)

    return handler


def chunked(*pieces: bytes) -> bytes:
    """The pieces as chunks, with the last chunk."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for a name or address ("IP:127.0.0.1"), and its key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"]
    places = ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *kind, *places], check=True, capture_output=True)
    return certificate, key


class RawRecorder:
    """A recorder's socket: takes batches and keeps their messages. `hold()` stops reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[Message] = []
        self.connections = 0
        self._reading = threading.Event()
        self._reading.set()
        self.pause_s = 0.0  # after each batch: for a slow recorder
        self._changed = threading.Condition()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "RawRecorder":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(self.path))
        self._listening.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        """Stops it as a kill does: unread batches are lost."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(PATIENCE_S)
        self._listening.close()
        self.path.unlink(missing_ok=True)
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._reading.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for one in self._open:
            one.close()
        self._open = []

    def hold(self) -> None:
        self._reading.clear()

    def release(self) -> None:
        self._reading.set()

    def wait(self, enough: Callable[[list[Message]], bool]) -> list[Message]:
        """The messages, once there are enough."""
        with self._changed:
            assert self._changed.wait_for(lambda: enough(self.messages), PATIENCE_S), self.messages
            return list(self.messages)

    def ended(self, streams: int = 1) -> list[Message]:
        """The messages, once this many streams have ended."""
        return self.wait(
            lambda messages: sum(isinstance(message, ExchangeEnding | CallEnded) for message in messages) >= streams
        )

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(one)
            thread = threading.Thread(target=self._read, args=(one,))
            self._threads.append(thread)
            thread.start()

    def _read(self, one: socket.socket) -> None:
        try:
            while True:
                self._reading.wait()
                prefix = receive(one, 4)
                if len(prefix) < 4:
                    return
                body = receive(one, int.from_bytes(prefix, "big"))
                if len(body) < int.from_bytes(prefix, "big"):
                    return
                with self._changed:
                    self.messages += apart(decode_batch(body))
                    self._changed.notify_all()
                time.sleep(self.pause_s)
        except OSError:
            return


class RunningRelay:
    """A relay in a thread with its own event loop."""

    def __init__(
        self,
        settings: RelaySettings,
        *,
        uv: bool = True,
        say: Callable[[str], None] = lambda _: None,
        others: Sequence[socket.socket] = (),
    ) -> None:
        self._others = others
        self._settings = settings
        self._say = say
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.relay: Relay
        self.faults: list[dict[str, object]] = []
        self._uv = uv
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "RunningRelay":
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.drain(0.0)
        assert not self.faults, self.faults

    def drain(self, timeout_s: float) -> None:
        """Drains, and waits for the end."""
        if self._thread.is_alive():
            self._drain_s = timeout_s
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Calls a function in the relay's loop."""
        done: list[Answer] = []
        happened = threading.Event()

        def run() -> None:
            done.append(function())
            happened.set()

        self._loop.call_soon_threadsafe(run)
        assert happened.wait(PATIENCE_S)
        return done[0]

    def incidents(self, incident: Incident) -> int:
        """How often the incident has happened."""
        return read_incidents(Path(self._settings.counters_path))[incident]

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        """A raw client."""
        one = socket.socket()
        if receive_buffer is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.settimeout(PATIENCE_S)
        try:
            one.connect(("127.0.0.1", self.port))
        except OSError:
            one.close()
            raise
        return one

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if self._uv else None) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self._stop = asyncio.Event()
        self.relay = await serve(self._settings, self._listening, self._others, self._say)
        self._ready.set()
        await self._stop.wait()
        await self.relay.drain(self._drain_s)


def settings_for(folder: Path, *urls: str, **changes: object) -> RelaySettings:
    """Settings with upstreams u0, u1, ... ; with a single one and no prefix if there is one URL."""
    upstreams = [(f"u{number}", url) for number, url in enumerate(urls)]
    given: dict[str, object] = {
        "upstreams": upstreams,
        "single": len(urls) == 1,
        "recorder_socket": str(folder / "recorder.sock"),
        "counters_path": str(folder / "counters"),
        "watch_s": 0.0,
    }
    return RelaySettings(**(given | changes))  # type: ignore[arg-type]


@contextlib.contextmanager
def exchange_rig(
    folder: Path, *handlers: Handler, uv: bool = True, **changes: object
) -> Iterator[tuple[RunningRelay, RawUpstream, RawRecorder]]:
    """An upstream, a recorder and a relay between them."""
    with (
        RawUpstream(*handlers) as upstream,
        RawRecorder(folder / "recorder.sock") as recorder,
        RunningRelay(settings_for(folder, upstream.url, **changes), uv=uv) as relay,
    ):
        yield relay, upstream, recorder


def kinds(messages: list[Message]) -> list[str]:
    """The messages' names, with repeated ones once."""
    names = [type(message).__name__ for message in messages]
    return [name for at, name in enumerate(names) if not at or names[at - 1] != name]


def arrived(messages: list[Message]) -> bytes:
    """All bytes that arrived."""
    return b"".join(message.data for message in messages if isinstance(message, ResponseRead))


def only(messages: list[Message], kind: type[Kind]) -> Kind:
    """The only message of a kind."""
    found = [message for message in messages if isinstance(message, kind)]
    assert len(found) == 1, found
    return found[0]


def waiting_for_clients(relay: RunningRelay) -> int:
    """Bytes of responses that the relay buffers because their clients do not read."""
    return relay.call(lambda: sum(client.transport.get_write_buffer_size() for client in relay.relay.clients))
