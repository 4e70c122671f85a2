"""A cluster that is brought into every phase of a replica's start and end on purpose, and judged afterwards.

Laws: a phase is reached by what the program offers (another catalog, a slow engine, a secret's file that
does not answer, a node that fell silent) and never by a switch made for tests; a phase counts as hit only
when the cluster itself was seen in it at the moment of the kill.
"""

import contextlib
import ctypes
import os
import random
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.cluster import NODE, Cluster, Process, sim_model
from tests.e2e.installation import Traffic, alive, until

CLAIM = 1_000_000_000  # of `sim_model`
GHOST = "ghost"  # a node of the roster that does not come back: without it settling would end at once
SLOW_START_S = 2.5
CLIENTS = 2
PR_SET_CHILD_SUBREAPER = 36


class Hit(NamedTuple):
    """A phase the cluster was seen in, and how it is left again once something was killed."""

    how: str
    undo: tuple[tuple[str, int], ...] = ()  # what to do afterwards: `resume` a pid, `open` the gate
    engine: int | None = None  # the engine's process, when it is too young to be found by its marker


class Zombie(NamedTuple):
    """A dead process whose status nobody took yet."""

    pid: int
    parent: int


class Rig:
    """The cluster, the model of the moment and the clients that ask for it."""

    def __init__(self, folder: Path, engine: str = "sim", source: Path | None = None) -> None:
        self.cluster = Cluster(folder)
        self.gate = folder / "gate"
        self.model = ""
        self.worn = False  # this model failed already: its next pause would be longer
        self.crowd: set[str] = set()  # replicas of one model that had processes at the same time
        self._engine, self._source = engine, source
        self._number = 0
        self._startup_s = 0.0
        self._slow_stream: threading.Thread | None = None
        _adopt_orphans(True)

    def begin(self) -> None:
        """Start everything, with a node in the roster that does not come back."""
        cluster = self.cluster
        self.gate.write_text("open\n")
        cluster.configure()
        cluster.start_server()
        cluster.start_agent(NODE)
        cluster.start_agent(GHOST)
        until("the server hears both nodes", lambda: cluster.hears_node(NODE) and cluster.hears_node(GHOST))
        cluster.stop(GHOST)
        self.rotate(random.Random(0))
        until("the first model is ready", lambda: not self.wrong())

    def end(self) -> None:
        """End every process of the cluster."""
        self.cluster.destroy()
        self.reap()
        _adopt_orphans(False)

    # ------------------------------------------------------------ getting somewhere

    def rotate(self, draw: random.Random, startup_s: float = 0.3) -> None:
        """Another model instead of the present one: the one starts, the other is drained and stopped."""
        self._number += 1
        self.model, self.worn, self._startup_s = f"m{self._number}", False, startup_s
        self.cluster.configure(self._definition())
        self.restart_server(draw)
        until("the server hears its node", self.cluster.hears_node)

    def _definition(self) -> dict[str, Any]:
        env = {"GATE": {"from_file": str(self.gate)}}
        if self._engine == "sim":
            args = {"startup": round(self._startup_s, 2), "decode-rate": 8}
            return sim_model(self.model, args=args, env=env)
        plain = sim_model(self.model, engine=self._engine, env=env)
        return plain | {"source": str(self._source)}

    def restart_server(self, draw: random.Random) -> None:
        """End the server, as an operator or as the kernel would, and start another."""
        if draw.random() < 0.5:
            self.cluster.stop("server")
        else:
            self.cluster.kill("server")
        self.cluster.start_server()

    def shut_gate(self) -> None:
        """From now on the agent waits for the secret while it validates a start."""
        self.gate.unlink()
        os.mkfifo(self.gate)

    def open_gate(self) -> None:
        """Let those who wait go on, and nobody wait again."""
        if not stat.S_ISFIFO(self.gate.stat().st_mode):
            return
        with contextlib.suppress(OSError):  # nobody waits
            writer = os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writer, b"open\n")
            os.close(writer)
        plain = self.gate.with_suffix(".new")
        plain.write_text("open\n")
        plain.rename(self.gate)

    def begin_slow_stream(self) -> None:
        """A request whose answer takes seconds, on the model of the moment."""

        def ask(model: str) -> None:
            with contextlib.suppress(Exception):  # it may be cut: that is what is played
                self.cluster.chat(model, stream=True, max_tokens=24)

        self._slow_stream = threading.Thread(target=ask, args=(self.model,), daemon=True)
        self._slow_stream.start()
        until("the slow request is in flight", lambda: self.replica(self.model).get("in_flight"))

    def join_slow_stream(self) -> None:
        """Wait for the end of the slow request."""
        if self._slow_stream is not None:
            self._slow_stream.join(timeout=60)
            self._slow_stream = None

    # ------------------------------------------------------------ looking

    def replica(self, model: str) -> dict[str, Any]:
        """The live replica of a model, as the server lists it; {} when there is none."""
        rows = self.cluster.replicas() or ()
        return next((row for row in rows if row["model"] == model and row["state"] != "failed"), {})

    def shard(self, model: str) -> dict[str, Any]:
        """Its only shard."""
        return next(iter(self.replica(model).get("shards", ())), {})

    def engines(self, model: str) -> list[Process]:
        """Engine processes of a model, whatever anybody reports."""
        return [one for one in self.cluster.engines() if one.shard.startswith(f"{model}-")]

    def watch_crowd(self) -> None:
        """Note when two replicas of one model have processes at the same time: one is wanted."""
        shards = {one.shard for one in self.engines(self.model)}
        if len(shards) > 1:
            self.crowd |= shards

    def wrong(self) -> list[str]:
        """Everything that is not yet as it should be; [] is a cluster that has converged."""
        status = self.cluster.status()
        if status is None:
            return ["no server answers"]
        if not status["leading"] or status["settling_s"]:
            return [f"leading {status['leading']}, settling {status['settling_s']}"]
        rows = self.cluster.replicas() or []
        if [(row["model"], row["state"]) for row in rows] != [(self.model, "ready")]:
            return [f"replicas {[(row['id'], row['state'], row['reason']) for row in rows]}"]
        found = self._wrong_processes(rows[0]) + self._wrong_claims(rows[0]) + self._wrong_routers(status)
        return found or self._wrong_answers()

    def _wrong_processes(self, row: dict[str, Any]) -> list[str]:
        processes = self.cluster.processes()
        roles = sorted(process.role for process in processes)
        found = []
        if roles != ["agent", "engine", "router", "server"]:
            found.append(f"processes {[(one.pid, one.role, one.shard) for one in processes]}")
        engines = [(one.pid, one.shard) for one in processes if one.role == "engine"]
        if engines != [(row["shards"][0]["pid"], f"{row['id']}/0")]:
            found.append(f"engines {engines}, reported {row['id']} {row['shards']}")
        ours = {process.pid for process in processes}
        kept = [zombie for zombie in self.zombies() if zombie.parent in ours]
        return found + ([f"zombies nobody collects {kept}"] if kept else [])

    def _wrong_claims(self, row: dict[str, Any]) -> list[str]:
        found = []
        ports = self.cluster.engine_ports_in_use()
        if ports != {int(row["url"].rpartition(":")[2])}:
            found.append(f"ports {ports}, the replica is at {row['url']}")
        node = self.cluster.node()
        if (node.get("memory_claimed_bytes"), node.get("replicas")) != (CLAIM, 1):
            found.append(f"claims {node.get('memory_claimed_bytes')} by {node.get('replicas')} replicas")
        records = sorted(path.name for path in self.cluster.agent_state().glob("shard-*"))
        if len(records) != 1 or not records[0].startswith(f"shard-{row['id']}-"):
            found.append(f"records {records}")
        return found

    def _wrong_routers(self, status: dict[str, Any]) -> list[str]:
        revisions = [router["revision"] for router in status["routers"]]
        return [] if revisions == [status["revision"]] else [f"routers {status['routers']}"]

    def _wrong_answers(self) -> list[str]:
        answers = [self.cluster.serves(self.model, stream=stream) for stream in (False, True)]
        return [f"an answer: {answer}" for answer in answers if answer]

    def zombies(self) -> list[Zombie]:
        """Dead processes that were children of ours, or of a process of the cluster."""
        ours = {process.pid for process in self.cluster.processes()} | {os.getpid()}
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] == "Z" and int(fields[1]) in ours:
                    found.append(Zombie(int(entry.name), int(fields[1])))
        return found

    def reap(self) -> None:
        """Take the status of what died: of what was started here, and of orphans that came to us."""
        for zombie in self.zombies():
            if zombie.parent == os.getpid() and zombie.pid not in self.cluster.own_children():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(zombie.pid, 0)
        self.cluster.collect()

    # ------------------------------------------------------------ killing

    def victim(self, role: str, model: str) -> int | None:
        """The process a role is played by now; `None` when there is not exactly one."""
        if role in ("server", "agent"):
            pid = self.cluster.pid("server" if role == "server" else NODE)
            return pid if alive(pid) else None
        pids = [one.pid for one in (self.cluster.routers() if role == "router" else self.engines(model))]
        return pids[0] if len(pids) == 1 else None

    def children_of_agent(self) -> set[int]:
        """What the agent has spawned, from the moment of the fork."""
        found: set[int] = set()
        for thread in Path(f"/proc/{self.cluster.pid(NODE)}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread is over
                found.update(map(int, (thread / "children").read_text().split()))
        return found

    def kill(self, role: str, pid: int) -> None:
        """`kill -9`, and what whoever supervises the process does then."""
        if role == "engine":
            self.worn = True
        if role not in ("server", "agent"):
            os.kill(pid, signal.SIGKILL)
            return
        name = "server" if role == "server" else NODE
        self.cluster.kill(name)
        if role == "server":
            self.cluster.start_server()
        else:
            self.cluster.start_agent(NODE)

    def undo(self, hit: Hit) -> None:
        """Leave a phase that was held open."""
        for what, pid in hit.undo:
            if what == "open":
                self.open_gate()
            elif alive(pid):
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def clients(self) -> Iterator[list[Traffic]]:
        """Clients that ask without pause while the block runs."""
        traffic = [Traffic(self.cluster, self.model) for _ in range(CLIENTS)]
        for one in traffic:
            one.begin()
        try:
            yield traffic
        finally:
            for one in traffic:
                one.end()


def _adopt_orphans(yes: bool) -> None:
    """Orphans of the cluster become children of this process, so that their deaths leave zombies to see."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) == 0


def pause(seconds: float) -> None:
    """Let a moment pass within a phase."""
    time.sleep(seconds)
