"""Real things raise inside a simulation, and are themselves again after it."""

import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid

import pytest

from llmgw.sim.guard import nothing_real
from llmgw.sim.loop import NotSimulated

MODULES = {"time": time, "random": random, "secrets": secrets, "uuid": uuid, "os": os}


def call_in(module: str, call: str) -> object:
    """Make a call as if it stood in a module of that name."""
    return eval(call, {**MODULES, "__name__": module})


@pytest.mark.parametrize(
    "call",
    [
        "time.time()",
        "time.monotonic()",
        "random.random()",
        "secrets.token_hex(8)",
        "uuid.uuid4()",
        "os.urandom(8)",
    ],
)
def test_our_own_code_may_not_read_a_clock_or_take_chances(call: str) -> None:
    with nothing_real():
        with pytest.raises(NotSimulated, match=rf"llmgw\.core\.fleet called {call.partition('(')[0]}"):
            call_in("llmgw.core.fleet", call)
        call_in("websockets.frames", call)  # a library masking its frames decides nothing
    call_in("llmgw.core.fleet", call)


def test_threads_children_and_sockets_are_refused_to_everybody() -> None:
    with nothing_real(), socket.socket() as sock:
        with pytest.raises(NotSimulated, match=r"Thread\.start"):
            threading.Thread(target=print).start()
        with pytest.raises(NotSimulated, match=r"Popen"):
            subprocess.Popen(["true"])
        with pytest.raises(NotSimulated, match=r"socket\.connect"):
            sock.connect(("127.0.0.1", 9))
        with pytest.raises(NotSimulated, match=r"socket\.bind"):
            sock.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
