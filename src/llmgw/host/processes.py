"""Starts, finds, watches and signals processes on this machine; implements `ports.Processes` on Linux.

Laws: identity is boot id, pid and start time, and is checked before every signal; a zombie is dead;
children and adopted processes are watched alike, through a pidfd, and their exit is seen at once; a
process is signalled by group only while that group can be no one else's; a process whose environment
cannot be read is not ours.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from llmgw.host.offloop import OffLoop
from llmgw.ports import ProcessId, SpawnFailed, SpawnSpec

SCAN_WITHIN_S = 5.0  # a scan of 3,000 processes takes 60 ms

_PROC = Path("/proc")
_DEAD = frozenset("ZXx")


class LinuxProcess:
    """A process we started or adopted."""

    def __init__(self, identity: ProcessId, pidfd: int, *, child: bool) -> None:
        self._identity = identity
        self._pidfd = pidfd
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int | None] = self._loop.create_future()
        self._loop.add_reader(pidfd, self._over)

    @property
    def identity(self) -> ProcessId:
        """Boot id, pid and start time."""
        return self._identity

    @property
    def over(self) -> bool:
        """Whether its end was seen."""
        return self._ended.done()

    async def wait(self) -> int | None:
        """Exit status; `None` for one that was adopted."""
        return await asyncio.shield(self._ended)

    def signal_group(self, signum: int) -> None:
        """Signal its process group; no error when it is gone."""
        pid = self._identity.pid
        started = _started(pid)
        # When its leader is gone, a group that still has members keeps its number from being given
        # to anyone; when the number belongs to another process by now, the group is not ours.
        if started is None or started == self._identity.start_time:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signum)

    def let_go(self) -> None:
        """Stop watching; the process goes on."""
        if not self._ended.done():
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._ended.cancel()

    def _over(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status: int | None = None
        if self._child:
            with contextlib.suppress(ChildProcessError):
                status = os.waitstatus_to_exitcode(os.waitpid(self._identity.pid, 0)[1])
        self._ended.set_result(status)


class LinuxProcesses:
    """The `Processes` of production."""

    def __init__(self, off_loop: OffLoop) -> None:
        self._off_loop = off_loop
        self._boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        self._watched: list[LinuxProcess] = []

    async def spawn(self, spec: SpawnSpec) -> LinuxProcess:
        """Start a process. Raises `SpawnFailed`.

        Without a bound: one given up here could still start and belong to nobody.
        """
        try:
            identity = await self._off_loop.run(lambda: self._start(spec), within=None, at=spec.argv[0])
        except (OSError, ValueError) as failed:
            reason = getattr(failed, "strerror", None) or str(failed)
            raise SpawnFailed(f"cannot start {spec.argv[0]}: {reason}") from failed
        return self._watch(identity, os.pidfd_open(identity.pid), child=True)

    def adopt(self, identity: ProcessId) -> LinuxProcess | None:
        """A handle on a process that is alive with exactly this identity."""
        if identity.boot_id != self._boot_id:
            return None
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError:
            return None
        if _alive(identity.pid) != identity.start_time:  # asked after opening: the pidfd is this process
            os.close(pidfd)
            return None
        return self._watch(identity, pidfd, child=False)

    async def marked(self, marker: Mapping[str, str]) -> list[ProcessId]:
        """Every live process whose environment holds all of these; `TimeoutError` when /proc hangs."""
        wanted = frozenset(f"{name}={value}".encode() for name, value in marker.items())
        return await self._off_loop.run(lambda: self._scan(wanted), within=SCAN_WITHIN_S, at=str(_PROC))

    def kill(self, identity: ProcessId, signum: int) -> None:
        """Signal one process if it still has this identity."""
        if identity.boot_id != self._boot_id:
            return
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError:
            return
        try:
            if _alive(identity.pid) == identity.start_time:
                signal.pidfd_send_signal(pidfd, signum)
        except (ProcessLookupError, PermissionError):
            pass
        finally:
            os.close(pidfd)

    def boot_id(self) -> str:
        """Changes with every boot."""
        return self._boot_id

    def own(self) -> ProcessId:
        """The process that asks."""
        started = _started(os.getpid())
        assert started is not None, "the running process has an entry in /proc"
        return ProcessId(self._boot_id, os.getpid(), started)

    def alive(self, identity: ProcessId) -> bool:
        """Whether a process with exactly this identity lives."""
        return identity.boot_id == self._boot_id and _alive(identity.pid) == identity.start_time

    def let_go(self) -> None:
        """Stop watching every process; they go on, and a later agent adopts them."""
        for process in self._watched:
            process.let_go()
        self._watched.clear()

    def _watch(self, identity: ProcessId, pidfd: int, *, child: bool) -> LinuxProcess:
        self._watched = [process for process in self._watched if not process.over]
        process = LinuxProcess(identity, pidfd, child=child)
        self._watched.append(process)
        return process

    def _start(self, spec: SpawnSpec) -> ProcessId:
        # O_APPEND: logs are cut while the engine holds the descriptor (A15).
        log = os.open(spec.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            child = subprocess.Popen(
                spec.argv,
                env=dict(spec.env),
                cwd=spec.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(log)
        started = _started(child.pid)
        assert started is not None, "a child that nobody waited for has an entry in /proc"
        # The pidfd's watcher collects the status; without this the object warns when it is collected.
        child.returncode = 0
        _until_marked(child.pid)
        return ProcessId(self._boot_id, child.pid, started)

    def _scan(self, wanted: frozenset[bytes]) -> list[ProcessId]:
        found: list[ProcessId] = []
        for entry in os.scandir(_PROC):
            if not entry.name.isdecimal():
                continue
            pid = int(entry.name)
            try:
                held = frozenset((_PROC / entry.name / "environ").read_bytes().split(b"\0"))
            except OSError:  # gone, or another user's
                continue
            started = _alive(pid) if wanted <= held else None
            if started is not None:
                found.append(ProcessId(self._boot_id, pid, started))
        return found


def _until_marked(pid: int) -> None:
    """Wait until a new process's environment can be read: the kernel reports success a moment earlier."""
    for _ in range(50):
        try:
            if (_PROC / str(pid) / "environ").read_bytes() or _alive(pid) is None:
                return
        except OSError:
            return  # over already
        time.sleep(0.001)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, which may hold spaces and parentheses."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """Start time in clock ticks since boot, of zombies too; `None` when there is no such process."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def _alive(pid: int) -> int | None:
    """Start time, unless it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in _DEAD else int(fields[19])
