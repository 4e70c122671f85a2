"""A real llama.cpp with a tiny model behind a router."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import msgspec

from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import Engine, snapshot
from tests.support.tiny_gguf import write_tiny_gguf

CONTEXT = 256
ENGINE_KEY = "real-engine-secret"
MODEL = wire.ModelEntry("tiny", "always", created=5)


@contextmanager
def llama_cpp(folder: Path, *arguments: str) -> Iterator[int]:
    """Its port, once it is healthy; ended with the block."""
    model = folder / "tiny.gguf"
    write_tiny_gguf(model)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [sys.executable, "-P", "-m", "llmgw.entry.llamacpp_wheel", "--model", str(model)]
    argv += ["--alias", "tiny", "--host", "127.0.0.1", "--port", str(port), "--parallel", "1"]
    argv += ["--ctx-size", str(CONTEXT), *arguments]
    with (folder / "log").open("wb") as log:
        env = {**os.environ, "LLAMA_API_KEY": ENGINE_KEY}
        engine = subprocess.Popen(argv, stdout=log, stderr=log, env=env)
        try:
            _wait_healthy(port, engine)
            yield port
        finally:
            engine.kill()
            engine.wait()


def _wait_healthy(port: int, engine: "subprocess.Popen[bytes]") -> None:
    for _ in range(800):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the engine exited with {engine.wait(0.05)}")
        with suppress(httpx.TransportError):
            if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
    raise AssertionError("the engine did not become healthy")


def table_of(port: int, model: wire.ModelEntry = MODEL) -> Callable[[list[Engine]], wire.Snapshot]:
    """What a router serves when there is but this engine."""
    entry = wire.EndpointEntry("tiny-0", "tiny", "127.0.0.1", port, "llama.cpp", ENGINE_KEY)

    def table(engines: list[Engine]) -> wire.Snapshot:
        return msgspec.structs.replace(snapshot(engines), models=(model,), endpoints=(entry,))

    return table
