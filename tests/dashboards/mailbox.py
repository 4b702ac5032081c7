"""A mailbox for a test: a mail server (SMTP) that keeps what it is sent."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server on a port of this host. `mails`: those that came, in their order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[EmailMessage] = []

    @property
    def address(self) -> str:
        """HOST:PORT."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        box = cast(Mailbox, self.server)
        self.wfile.write(b"220 mailbox\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                content = b"".join(iter(self.rfile.readline, b".\r\n"))
                box.mails.append(message_from_bytes(content, policy=policy.default))
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """A mailbox, which takes mails while the context lasts."""
    with Mailbox() as box:
        thread = threading.Thread(target=box.serve_forever)
        thread.start()
        try:
            yield box
        finally:
            box.shutdown()
            thread.join()
