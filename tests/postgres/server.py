"""A real PostgreSQL server for tests: installed by the project's own script if it is missing and can be installed."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

ROOT = Path(__file__).parents[2]
# Time until a server answers, with room for a machine that runs other tests (seconds).
READY_S = 60.0
USER = "gauge"


def programs() -> Path:
    """The directory of initdb and postgres; skips the test with the script's reason if they cannot be installed."""
    found = _found()
    if found is None:
        script = subprocess.run(
            [ROOT / "scripts" / "install_packages", "postgresql", "initdb", "postgres"],
            capture_output=True,
            text=True,
            check=False,
        )
        if script.returncode != 0:
            pytest.skip(script.stderr.strip().splitlines()[-1])
        found = _found()
        assert found is not None
    return found


def _found() -> Path | None:
    # Debian keeps the programs of each version in a directory of their own.
    directories = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    path = os.pathsep.join([*directories, os.environ.get("PATH", "")])
    initdb = shutil.which("initdb", path=path)
    return None if initdb is None else Path(initdb).resolve().parent


class PostgresServer:
    """A server with a directory and a port of its own. Texts sort as in English, not by code points.

    `certificate`: the PEM text of a certificate and its key, for TLS on the address `host`, where each user may log in.
    """

    def __init__(self, host: str = "127.0.0.1", certificate: bytes | None = None) -> None:
        self._host, self._certificate = host, certificate
        self._programs = programs()
        self._account = _account()
        self._directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # pytest's directories are closed to others
        if self._account is not None:
            os.chown(self._directory, self._account.pw_uid, self._account.pw_gid)
        self.port = free_port()
        self._run("initdb", "-D", str(self._data), "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8",
                  "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US")  # fmt: skip
        if host != "127.0.0.1":
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all 0.0.0.0/0 trust\n")
        if certificate is not None:
            for name in ("server.crt", "server.key"):
                file = self._data / name
                file.write_bytes(certificate)
                file.chmod(0o600)
                if self._account is not None:
                    os.chown(file, self._account.pw_uid, self._account.pw_gid)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://{USER}@{self._host}:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """The process id of the server, the parent of those that serve connections."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        settings = {"listen_addresses": self._host, "ssl": "on" if self._certificate else "off", "fsync": "off",
                    "unix_socket_directories": str(self._directory),
                    "shared_buffers": "16MB", "max_connections": "100", "port": str(self.port)}  # fmt: skip
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *arguments], stdout=log, stderr=log, **self._as_user()
            )
        import psycopg  # each test process loads this module, and few use it

        deadline = time.monotonic() + READY_S
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5, sslmode="prefer").close()
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < deadline, (self._directory / "log").read_text()
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends it: SIGINT breaks its connections off and shuts down, SIGQUIT is a crash."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(READY_S)

    def remove(self) -> None:
        """Ends it, and removes its files."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def fresh(self, name: str) -> str:
        """The URL of an empty schema of its own."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"{self.url}?options=-csearch_path%3D{name}"

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], capture_output=True, text=True, check=False, **self._as_user()
        )
        assert done.returncode == 0, done.stderr

    def _as_user(self) -> dict[str, Any]:
        """The server refuses to run as root."""
        if self._account is None:
            return {"cwd": str(self._directory)}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "cwd": str(self._directory)}


def _account() -> pwd.struct_passwd | None:
    """The account that runs the server if this process is root's."""
    if os.geteuid() != 0:
        return None
    names = {account.pw_name for account in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")
