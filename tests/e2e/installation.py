"""A whole llmgw on this machine for a test: `llmgw up` in its own data folder, looked at from outside.

Everything is found by the data folder: its path is in the command line or the environment of each process
that belongs to the installation, so nothing else is ever touched.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

READY_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(what: str, look: Callable[[], T | None], limit_s: float = READY_S) -> T:
    """The first true thing `look` returns; fails naming `what` when it does not come."""
    deadline = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {limit_s:.0f} s (last seen: {found!r})")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Installation:
    """One data folder, one port for clients, one for the admin."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.admin_port = free_port()
        self.arguments = arguments
        self.output = folder / "up.out"
        self.up: subprocess.Popen[bytes] | None = None

    # ------------------------------------------------------------ running it

    def start(self) -> None:
        """Start `llmgw up` and wait until it says that it serves."""
        seen = self.output.read_text().count("curl") if self.output.exists() else 0
        with self.output.open("ab") as output:
            self.up = subprocess.Popen(
                [*LLMGW, "up", *self.options()],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        until("`llmgw up` prints how to connect", lambda: self._says_ready(seen))

    def options(self) -> list[str]:
        """The arguments of `up`."""
        ports = ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        return ["--data", str(self.data), *ports, *self.arguments]

    def _says_ready(self, seen: int) -> bool:
        assert self.up is not None
        text = self.output.read_text()
        assert self.up.poll() is None, f"`llmgw up` ended with {self.up.returncode}:\n{text}"
        return text.count("curl") > seen

    def stop(self, signum: int = signal.SIGINT, limit_s: float = 30.0) -> int:
        """End `up` as a person would; its exit code."""
        assert self.up is not None
        self.up.send_signal(signum)
        return self.up.wait(timeout=limit_s)

    def destroy(self) -> None:
        """End whatever is left of this installation, and only of it."""
        if self.up is not None and self.up.poll() is None:
            self.up.kill()
            self.up.wait()
        for _ in range(50):
            left = self.processes()
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    # ------------------------------------------------------------ looking at it

    def key(self) -> str:
        """The first API key."""
        return (self.data / "first-key").read_text().strip()

    def processes(self) -> dict[int, str]:
        """Command lines of all live processes of this installation, by pid."""
        mark = str(self.data).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if (mark in command or mark in (entry / "environ").read_bytes()) and alive(int(entry.name)):
                    found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def role(self, verb: str) -> int | None:
        """The pid of the process that runs `llmgw VERB`, when there is exactly one."""
        pids = [pid for pid, command in self.processes().items() if f"llmgw {verb} " in command + " "]
        return pids[0] if len(pids) == 1 else None

    def engines(self) -> list[int]:
        """Pids of the engines the control plane reports."""
        return [shard["pid"] for replica in self.replicas() for shard in replica["shards"] if shard["pid"]]

    def ctl(self, *arguments: str) -> Any:
        """What `llmgw ctl … --json` prints."""
        done = self.run_ctl(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run_ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`llmgw ctl` against this installation."""
        environment = {
            **os.environ,
            "LLMGW_SERVER": f"http://127.0.0.1:{self.admin_port}",
            "LLMGW_TOKEN_FILE": str(self.token_file()),
        }
        return subprocess.run(
            [*LLMGW, "ctl", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def token_file(self) -> Path:
        """The admin token, wherever below the data folder it is."""
        return next(self.data.rglob("admin-token"))

    def replicas(self) -> list[dict[str, Any]]:
        """Replicas as `ctl replicas --json` lists them; none while no server answers."""
        done = self.run_ctl("replicas", "--json")
        if done.returncode == 3:
            return []
        assert done.returncode == 0, done.stderr
        listed: list[dict[str, Any]] = json.loads(done.stdout)
        return listed

    def ready_replicas(self) -> list[dict[str, Any]]:
        """Those that are ready."""
        return [replica for replica in self.replicas() if replica["state"] == "ready"]

    def model(self) -> str:
        """The first model clients see."""
        status, body = self.request("GET", "/v1/models")
        assert status == 200, body
        name: str = json.loads(body)["data"][0]["id"]
        return name

    # ------------------------------------------------------------ asking it

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request with the first key; status and whole body. Raises what http.client raises."""
        whole = {"Authorization": f"Bearer {self.key()}", "Content-Type": "application/json"} | (
            headers or {}
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, whole)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def chat(self, model: str, *, stream: bool = False, max_tokens: int = 20) -> tuple[int, bytes]:
        """One chat request."""
        body = {
            "model": model,
            "stream": stream,
            "max_tokens": max_tokens,
            "temperature": 0,
            "messages": [{"role": "user", "content": "hello"}],
        }
        return self.request("POST", "/v1/chat/completions", json.dumps(body).encode())


class Asked(Protocol):
    """What clients can ask."""

    def chat(self, model: str, *, stream: bool = False, max_tokens: int = 20) -> tuple[int, bytes]: ...


class Traffic:
    """One client that asks without pause and counts what it got."""

    def __init__(self, installation: Asked, model: str) -> None:
        self.good = 0
        self.bad: list[str] = []
        self._installation = installation
        self._model = model
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        stream = False
        while not self._ending.is_set():
            stream = not stream
            try:
                status, body = self._installation.chat(self._model, stream=stream, max_tokens=5)
            except (OSError, http.client.HTTPException) as error:
                self.bad.append(repr(error))
                self._ending.wait(0.05)  # a client that cannot connect need not spin
                continue
            whole = status == 200 and (body.rstrip().endswith(b"[DONE]") if stream else b'"choices"' in body)
            if whole:
                self.good += 1
            else:
                self.bad.append(f"{status} {body[-300:].decode(errors='replace')}")
                self._ending.wait(0.05)

    def seen_good(self, more: int) -> None:
        """Wait until that many further requests went well."""
        goal = self.good + more
        until(f"{more} more good answers (bad so far: {self.bad[-3:]})", lambda: self.good >= goal)

    def begin(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def end(self) -> None:
        """Stop asking, once the last answer is there."""
        self._ending.set()
        self._thread.join(timeout=60)

    @contextlib.contextmanager
    def running(self) -> Iterator["Traffic"]:
        """Ask while the block runs; prints what was counted."""
        self.begin()
        try:
            yield self
        finally:
            self.end()
            print(f"traffic: {self.good} good, {len(self.bad)} bad {self.bad[:3]}")


LLMGW = (sys.executable, "-m", "llmgw")
