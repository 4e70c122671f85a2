"""Makes what is real raise while a simulation runs: threads, sockets, child processes, clocks, chance.

Laws: nothing of llmgw reads a real clock or unseeded chance in here; libraries may still stamp log lines
and mask frames, which decides nothing; what was replaced is put back however the simulation ends.
"""

import contextlib
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest.mock import patch

from llmgw.sim.loop import NotSimulated

# What llmgw's own code may not call here, though libraries may.
_CLOCKS_AND_CHANCE = (
    *((time, name) for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep")),
    *((random, name) for name in ("random", "randint", "choice", "shuffle", "uniform")),
    *((secrets, name) for name in ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice")),
    *((uuid, name) for name in ("uuid1", "uuid4")),
    (os, "urandom"),
)
# What nobody may.
_FORBIDDEN = (
    (threading.Thread, "start"),
    (subprocess.Popen, "__init__"),
    (socket.socket, "connect"),
    (socket.socket, "bind"),
    (socket, "getaddrinfo"),
)
_ALLOWED = ("llmgw.sim.guard",)


@contextlib.contextmanager
def nothing_real() -> Iterator[None]:
    """Within it, real things raise `NotSimulated`."""
    with contextlib.ExitStack() as stack:
        for module, name in _CLOCKS_AND_CHANCE:
            stack.enter_context(patch.object(module, name, _refused_to_us(module, name)))
        for owner, name in _FORBIDDEN:
            stack.enter_context(patch.object(owner, name, _refused(owner, name)))
        yield


def _refused_to_us(owner: Any, name: str) -> Callable[..., Any]:
    real = getattr(owner, name)

    def guarded(*args: Any, **kw: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("llmgw.") and caller not in _ALLOWED:
            raise NotSimulated(f"{caller} called {owner.__name__}.{name}")
        return real(*args, **kw)

    return guarded


def _refused(owner: Any, name: str) -> Callable[..., NoReturn]:
    def guarded(*args: Any, **kw: Any) -> NoReturn:
        raise NotSimulated(f"{owner.__name__}.{name}")

    return guarded
