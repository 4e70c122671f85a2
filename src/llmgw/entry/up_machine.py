"""Looks at this machine for `llmgw up`: who holds a port, at which address others reach it, what is left of
an earlier run.
"""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from llmgw.core.text import printable
from llmgw.entry.process import CannotRun
from llmgw.host.netports import port_free

ALIVE_EVERY_S = 0.05


def program(started_as: str) -> str:
    """How a shell on this machine calls this program: by its name only where that finds it."""
    path = Path(started_as).absolute()
    if path.name != "llmgw":
        return f"{shlex.quote(sys.executable)} -m llmgw"
    found = shutil.which("llmgw")
    return "llmgw" if found is not None and Path(found).absolute() == path else shlex.quote(str(path))


def check_port(address: str, option: str, mine: Iterable[int]) -> None:
    """Refuse a listen address that others hold; `mine` are pids that may. Raises `CannotRun`."""
    host, _, text = address.rpartition(":")
    port = int(text)
    try:
        if port_free(host.strip("[]"), port):
            return
    except PermissionError:
        raise CannotRun(f"port {port} is for root only; choose another with {option}") from None
    except OSError as error:
        raise CannotRun(
            f"cannot listen at {address}: {error.strerror}; choose another with {option}"
        ) from None
    pid = _holder(port)
    if pid is not None and pid in mine:
        return
    who = f" by {_name(pid)} (pid {pid})" if pid is not None else ""
    raise CannotRun(f"port {port} is taken{who}; stop that, or choose another port with {option}")


def _holder(port: int) -> int | None:
    """The pid that listens there, when the system says it."""
    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for one in found:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid is not None:
            return int(one.pid)
    return None


def _name(pid: int) -> str:
    try:
        command = psutil.Process(pid).cmdline()
        return printable(" ".join(command)[:80]) or psutil.Process(pid).name()
    except psutil.Error:
        return "a process"


def addresses_for_others() -> tuple[str, ...]:
    """IPv4 addresses of the interface that leads out of this machine; none when there is none."""
    out = _default_interface()
    if out is None:
        return ()
    return tuple(one.address for one in psutil.net_if_addrs().get(out, ()) if one.family == socket.AF_INET)


def _default_interface() -> str | None:
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return None
    routes = [line.split() for line in lines]
    ways = [(int(route[6]), route[0]) for route in routes if route[1] == "00000000" and int(route[3], 16) & 1]
    return min(ways)[1] if ways else None


# ---------------------------------------------------------------- processes of an earlier or ending run


def marked(marks: Iterable[Mapping[str, str]]) -> dict[int, str]:
    """Live processes of this user whose environment holds one of the marks, with their command lines."""
    wanted = [frozenset(f"{k}={v}".encode() for k, v in mark.items()) for mark in marks]
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            held = frozenset((entry / "environ").read_bytes().split(b"\0"))
            if any(mark <= held for mark in wanted):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:  # a zombie has none
                    found[int(entry.name)] = command
    return found


async def gone(marks: Iterable[Mapping[str, str]], containing: str, within_s: float) -> bool:
    """Wait until no marked process with this in its command line is left; whether none is."""
    wanted = tuple(marks)
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while any(containing in command for command in marked(wanted).values()):
        if loop.time() >= until:
            return False
        await asyncio.sleep(ALIVE_EVERY_S)
    return True


async def sweep(marks: Iterable[Mapping[str, str]], within_s: float) -> None:
    """End every marked process: ask, then by force after `within_s`."""
    wanted = tuple(marks)
    _signal_all(marked(wanted), signal.SIGTERM)
    if not await gone(wanted, "", within_s):
        _signal_all(marked(wanted), signal.SIGKILL)
        await gone(wanted, "", 5.0)


def _signal_all(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
