"""A server and an agent of this machine, each a process of its own that the test starts, kills and restarts.

Laws: everything is found by the folder, which is in the command line or the environment of each process,
so nothing else is ever touched; what the processes say of themselves is never the only witness, `/proc` is
asked as well.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.installation import LLMGW, alive, free_port, until

ENGINE_PORTS = 40
NODE = "n1"
_LISTEN = "0A"


class Process(NamedTuple):
    """A process of a cluster, as /proc shows it."""

    pid: int
    command: str
    role: str  # server, agent, router, engine, or "" for one that is none of these
    shard: str  # the marker of an engine: replica/rank


def free_range(size: int) -> range:
    """Ports for engines, below those the kernel gives out; none is listened on now."""
    taken = listening(range(10000, 32000))
    for first in range(10000 + (os.getpid() * 97) % 15000, 32000 - size, size):
        ports = range(first, first + size)
        if not taken & set(ports):
            return ports
    raise AssertionError("no free range of ports")


def listening(ports: range) -> set[int]:
    """Ports of a range something listens on, by the kernel's word."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                port = int(fields[1].rpartition(":")[2], 16)
                if fields[3] == _LISTEN and port in ports:
                    found.add(port)
    return found


class Cluster:
    """One `llmgw server` and its `llmgw agent`s over one folder."""

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self.port, self.admin_port, self._agents_port = free_port(), free_port(), free_port()
        self.engine_ports = free_range(ENGINE_PORTS)
        self._settings = dict(settings or {})
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: list[subprocess.Popen[bytes]] = []
        self._key = ""
        self.server_yaml = folder / "server.yaml"
        folder.mkdir(parents=True, exist_ok=True)

    # ------------------------------------------------------------ configuration

    def configure(self, *models: Mapping[str, Any]) -> None:
        """Write server.yaml; a server that starts after it has these models."""
        ports = f"{self.engine_ports.start}-{self.engine_ports.stop - 1}"
        written = {
            "clients": {"listen": f"127.0.0.1:{self.port}"},
            "admin": {"listen": f"127.0.0.1:{self.admin_port}"},
            "agents": {"listen": f"127.0.0.1:{self._agents_port}"},
            "store": f"sqlite:///{self.folder / 'llmgw.db'}",
            "state_dir": str(self.folder / "state"),
            "control": {"settling": "2s", "ports": ports} | self._settings,
            "router": {"drain": "2s"},
            "models": list(models),
        }
        self.server_yaml.write_text(json.dumps(written))  # which is YAML, too

    def agent_yaml(self, name: str, **more: object) -> Path:
        """Write the file of an agent."""
        path = self.folder / f"{name}.yaml"
        written = {
            "server": f"127.0.0.1:{self._agents_port}",
            "id": name,
            "address": "127.0.0.1",
            "state_dir": str(self.agent_state(name)),
            "weights_dir": str(self.folder / "weights"),
        }
        path.write_text(json.dumps(written | more))
        return path

    def agent_state(self, name: str = NODE) -> Path:
        """Where an agent keeps what it must remember."""
        return self.folder / f"agent-{name}"

    # ------------------------------------------------------------ running it

    def start_server(self) -> None:
        """Start a server, without waiting for it."""
        self._start("server", "server", "-c", str(self.server_yaml))

    def start_agent(self, name: str = NODE, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Start an agent, without waiting for it; its file is written when it has none."""
        path = self.folder / f"{name}.yaml"
        if not path.exists():
            self.agent_yaml(name)
        self._start(name, "agent", "-c", str(path), *arguments, env=env)

    def _start(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*LLMGW, *arguments],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def pid(self, name: str) -> int:
        """The pid of the server ("server") or of an agent, as started last."""
        return self._running[name].pid

    def own_children(self) -> set[int]:
        """Pids of the processes started here, whose status their `Popen` collects."""
        return {process.pid for process in (*self._running.values(), *self._killed)}

    def kill(self, name: str) -> None:
        """`kill -9` of a process started here; it stays a zombie until `collect`."""
        process = self._running[name]
        os.kill(process.pid, signal.SIGKILL)
        until(f"{name} is dead", lambda: not alive(process.pid))
        self._killed.append(process)

    def collect(self) -> None:
        """Take the status of what was killed here."""
        while self._killed:
            self._killed.pop().wait()

    def wait(self, name: str, limit_s: float = 30.0) -> int:
        """Wait until a process started here has ended; its status."""
        return self._running[name].wait(limit_s)

    def stop(self, name: str, limit_s: float = 30.0) -> None:
        """End a process as an operator would."""
        self._running[name].terminate()
        self.wait(name, limit_s)

    def up(self) -> None:
        """Start a server and one agent and wait until the server hears the node."""
        self.start_server()
        self.start_agent()
        until("the server hears its node", self.hears_node)

    def destroy(self) -> None:
        """End whatever is left of this cluster, and only of it."""
        for _ in range(100):
            left = self.processes()
            if not left:
                break
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)
        for started in self._running.values():
            started.wait()
        self.collect()

    # ------------------------------------------------------------ /proc

    def processes(self) -> list[Process]:
        """Every live process of this cluster."""
        mark = str(self.folder).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes()
                if (mark in command or mark in environ) and alive(int(entry.name)):
                    line = command.replace(b"\0", b" ").decode(errors="replace").strip()
                    shard = _variable(environ, b"LLMGW_MARK_SHARD=")
                    role = "engine" if shard else _role(line)
                    found.append(Process(int(entry.name), line, role, shard))
        return found

    def engines(self) -> list[Process]:
        """Every live process that carries the marker of a shard."""
        return [process for process in self.processes() if process.role == "engine"]

    def routers(self) -> list[Process]:
        """Every live router process."""
        return [process for process in self.processes() if process.role == "router"]

    def engine_ports_in_use(self) -> set[int]:
        """Of the ports engines get, those something listens on."""
        return listening(self.engine_ports)

    def log(self, name: str) -> str:
        """What a process wrote, all its incarnations."""
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ------------------------------------------------------------ the admin API

    def get(self, path: str) -> Any | None:
        """What the admin API answers; `None` while no server does."""
        token = self.folder / "state" / "admin-token"
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=5)
            with contextlib.closing(connection):
                headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
                connection.request("GET", f"/api/v1/{path}", headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == 200:
                    return json.loads(body)
        return None

    def status(self) -> dict[str, Any] | None:
        """The fleet in one screen."""
        return self.get("status")

    def replicas(self) -> list[dict[str, Any]] | None:
        """Every replica."""
        return self.get("replicas")

    def model(self, name: str) -> dict[str, Any]:
        """One model's row; {} while no server answers."""
        return next((row for row in self.get("models") or () if row["name"] == name), {})

    def node(self, name: str = NODE) -> dict[str, Any]:
        """One node's row; {} while no server answers or the node is not known."""
        return next((row for row in self.get("nodes") or () if row["id"] == name), {})

    def hears_node(self, name: str = NODE) -> bool:
        """Whether an agent has a stream to the server that runs now."""
        row = self.node(name)
        return row.get("state") == "ready" and row.get("heard_s") is not None

    def events(self, **about: str) -> list[dict[str, Any]]:
        """Decisions, newest first."""
        query = "&".join(f"{name}={value}" for name, value in about.items())
        return self.get(f"events?limit=500&{query}") or []

    def ctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`llmgw ctl` against this cluster."""
        return self._llmgw(
            "ctl",
            *arguments,
            LLMGW_SERVER=f"http://127.0.0.1:{self.admin_port}",
            LLMGW_TOKEN_FILE=str(self.folder / "state" / "admin-token"),
        )

    def _llmgw(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LLMGW, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    # ------------------------------------------------------------ clients

    @property
    def key(self) -> str:
        """An API key, made at the first asking."""
        if not self._key:
            made = self._llmgw(
                "keys", "--config", str(self.server_yaml), "key", "create", "--name", "t", "--json"
            )
            assert made.returncode == 0, made.stderr
            self._key = json.loads(made.stdout)["key"]
            # Routers hear of it within a second or two (K2); until then it is not valid there.
            until("the router knows the key", self._key_is_known, limit_s=30)
        return self._key

    def _key_is_known(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {self._key}"})
            return connection.getresponse().status != 401
        return False

    def chat(
        self, model: str, *, stream: bool = False, max_tokens: int = 5, limit_s: float = 30.0
    ) -> tuple[int, bytes]:
        """One chat request; status and whole body. Raises what http.client raises."""
        body = {
            "model": model,
            "stream": stream,
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": "hello"}],
        }
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def serves(self, model: str, *, stream: bool = False) -> str:
        """What is wrong with an answer of this model; "" when it is whole."""
        try:
            status, body = self.chat(model, stream=stream)
        except (OSError, http.client.HTTPException) as error:
            return repr(error)
        if status == 200 and (body.rstrip().endswith(b"[DONE]") if stream else b'"choices"' in body):
            return ""
        return f"{status} {body[-300:].decode(errors='replace')}"


def _variable(environ: bytes, start: bytes) -> str:
    found = (entry for entry in environ.split(b"\0") if entry.startswith(start))
    return next(found, start).removeprefix(start).decode()


def _role(command: str) -> str:
    for role in ("server", "agent", "router"):
        if f" llmgw {role} " in command:
            return role
    return ""


def sim_model(name: str, *, args: Mapping[str, object] | None = None, **profile: object) -> dict[str, Any]:
    """A model on the simulated engine, one replica of it."""
    made = {"name": "cpu", "engine": "sim", "min_memory_gb": 1, "args": dict(args or {})} | profile
    return {"name": name, "scaling": {"min": 1}, "profiles": [made]}
