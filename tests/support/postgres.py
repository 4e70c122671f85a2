"""A PostgreSQL server of a test's own: made from the system's packages, on a free port, ended by its pid.

Laws: PostgreSQL refuses to run as root, so that root's tests run it as the user its package made; nothing
is reused between sessions and nothing is left; every process that is stopped or killed is a child of the
one started here.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

OWNER = "llmgw"  # the role servers under test connect as; it owns its databases and nothing else
PASSWORD = "pa:ss@w/or?d%"  # as people's are
PROGRAMS = ("initdb", "postgres", "psql")

START_S = 30.0
# However this process ends, its server does not outlive it.
_WITH_US = ("setpriv", "--pdeathsig", "QUIT", "--") if shutil.which("setpriv") else ()


def programs() -> Path | None:
    """The folder of PostgreSQL's server programs; Debian keeps them out of the path."""
    found = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if _whole(folder)]
    if found:
        return max(found, key=lambda folder: int(folder.parent.name))
    initdb = shutil.which("initdb")
    folder = Path(initdb).resolve().parent if initdb else None
    return folder if folder is not None and _whole(folder) else None


def _whole(folder: Path) -> bool:
    return all((folder / program).exists() for program in PROGRAMS)


class PostgresCluster:
    """A server with its data below a folder of its own."""

    def __init__(self, bin: Path) -> None:
        self.bin = bin
        self.port = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="llmgw-postgres-"))
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)

    # ------------------------------------------------------------ running it

    def make(self) -> None:
        """Initialise and start it, with a role for those under test."""
        secret = self.folder / "superuser"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        # Not the C locale: what depends on an order of text shows.
        self._run(
            "initdb", "--no-sync", "--username=postgres", f"--pwfile={secret}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US",
            "--pgdata", str(self.data),
        )  # fmt: skip
        self.start()
        self.sql(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",  # the machine does not crash in a test; processes do, which is fine
            "shared_buffers": "16MB",
            "max_connections": "60",
            "log_min_messages": "warning",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_WITH_US, self.bin / "postgres", "-D", self.data, "-p", str(self.port), *options],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True,
                **self._as_user(),
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while self._psql("SELECT 1").returncode != 0:
            ended = self._process.poll()
            assert ended is None, f"postgres ended with {ended}: {self.log()}"
            assert time.monotonic() < deadline, f"postgres did not start: {self.log()}"

    def log(self) -> str:
        """The last of what the server said."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End it as an administrator would: connections are cut."""
        if self._process is not None:
            self.resume()
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(timeout=START_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End all of it at once, as a power cut would."""
        assert self._process is not None
        children = self._children()
        self._process.kill()
        self._process.wait()
        for pid in filter(self._is_ours, children):
            _signal(pid, signal.SIGKILL)
        deadline = time.monotonic() + START_S
        while any(_alive(pid) for pid in filter(self._is_ours, children)):
            assert time.monotonic() < deadline, "a process of postgres does not end"
        self._process = None

    def freeze(self) -> None:
        """Let none of its processes run: connections stay open and nothing answers."""
        assert self._process is not None
        _signal(self._process.pid, signal.SIGSTOP)  # first, so that no further children come
        for pid in self._children():
            _signal(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        assert self._process is not None
        for pid in (*self._children(), self._process.pid):
            _signal(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen while the block runs."""
        self.freeze()
        try:
            yield
        finally:
            self.resume()

    def destroy(self) -> None:
        """End it and remove all of it."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self.folder)

    def configure(self, settings: Mapping[str, str], *, access: str | None = None) -> None:
        """Change settings, and who may connect (lines of pg_hba.conf), without a restart."""
        if access is not None:
            (self.data / "pg_hba.conf").write_text(access)
        self.sql(*(f"ALTER SYSTEM SET {name} = '{value}'" for name, value in settings.items()))
        self.sql("SELECT pg_reload_conf()")

    def own(self, file: Path) -> Path:
        """A private copy of a file that the server can read."""
        copy = self.folder / file.name
        shutil.copyfile(file, copy)
        copy.chmod(0o600)
        if self._user is not None:
            os.chown(copy, self._user.pw_uid, self._user.pw_gid)
        return copy

    # ------------------------------------------------------------ using it

    def url(self, database: str, *, user: str = OWNER, password: str = PASSWORD, query: str = "") -> str:
        """A `store:` address."""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}{query}"

    def database(self, template: str = "template1", settings: str | None = None) -> str:
        """The name of a new database that those under test own; `settings` as ALTER DATABASE takes them."""
        self._databases += 1
        name = f"store_{self._databases}"
        more = () if settings is None else (f"ALTER DATABASE {name} {settings}",)
        self.sql(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template}", *more)
        return name

    def drop(self, database: str) -> None:
        """Remove a database, whoever is still connected."""
        self.sql(f"DROP DATABASE {database} WITH (FORCE)")

    def sql(self, *statements: str, database: str = "postgres") -> str:
        """Run statements as the superuser, each on its own; what they return, as text."""
        done = self._psql(*statements, database=database)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _psql(self, *statements: str, database: str = "postgres") -> subprocess.CompletedProcess[str]:
        commands = [word for statement in statements for word in ("-c", statement)]
        argv = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(
            [self.bin / "psql", *argv, "-U", "postgres", "-d", database, *commands],
            env={**os.environ, "PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "10"},
            capture_output=True, text=True, timeout=START_S, check=False,
        )  # fmt: skip

    # ------------------------------------------------------------ its processes

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.bin / program, *arguments],
            capture_output=True, text=True, timeout=START_S, check=False, cwd="/", **self._as_user(),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def _is_ours(self, pid: int) -> bool:
        """Whether a pid is still that of a process of PostgreSQL; its parent is gone and cannot say so."""
        try:
            return Path(f"/proc/{pid}/exe").resolve().parent == self.bin.resolve()
        except OSError:
            return False

    def _children(self) -> list[int]:
        """Backends and helpers; each has its own session, so that no group signal reaches them."""
        assert self._process is not None
        return [int(entry.name) for entry in Path("/proc").iterdir() if _parent(entry) == self._process.pid]


def _stat(entry: Path) -> list[str]:
    """State, parent and what follows of a process; nothing when there is none."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(entry: Path) -> int | None:
    stat = _stat(entry)
    return int(stat[1]) if stat else None


def _alive(pid: int) -> bool:
    return _stat(Path(f"/proc/{pid}"))[:1] not in ([], ["Z"])


def _signal(pid: int, signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signum)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("there is no user postgres or nobody to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
