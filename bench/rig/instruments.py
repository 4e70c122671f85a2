"""Builds and runs the instruments: the mock engine and the load generator, two small C programs.

They are C because whoever measures a proxy must not be busier than the proxy. They are compiled with the
machine's compiler into a scratch folder each time, which takes a second.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
NO_COMPILER = "the measurement compiles two small C programs and found no `cc`: apt-get install gcc libc6-dev"


class CannotMeasure(Exception):
    """What is missing or went wrong, in one line."""


class Cores(msgspec.Struct, frozen=True):
    """Which cores the subject and the instruments run on, so that neither takes from the other."""

    subject: frozenset[int]
    instruments: frozenset[int]


class Load(msgspec.Struct, frozen=True):
    """What the clients do. `events` is 0 for plain answers. Seconds."""

    connections: int
    events: int
    warm_up_s: float
    measured_s: float
    delay_s: float = 0.0  # over which they begin


class Sample(msgspec.Struct, frozen=True):
    """What the load generator saw. Durations in seconds; CPU in seconds within the measured time."""

    seconds: float
    requests: int
    events: int
    errors: int
    latency_p50_s: float | None
    latency_p99_s: float | None
    first_event_p50_s: float | None
    first_event_p99_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None
    subject_cpu_s: float
    engine_cpu_s: float
    load_cpu_s: float


class Engine(msgspec.Struct, frozen=True):
    """A running mock engine: one process behind several ports."""

    pid: int
    ports: tuple[int, ...]
    events: int  # that one stream brings, the closing ones included


def split_cores() -> Cores:
    """One core for the subject, the others for the instruments. Raises `CannotMeasure`."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise CannotMeasure(
            f"the subject and the instruments need a core each; this process may use {len(usable)}"
        )
    return Cores(frozenset(usable[:1]), frozenset(usable[1:]))


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Whatever is started inside runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def build(folder: Path) -> None:
    """Compile both instruments into `folder`. Raises `CannotMeasure`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure(NO_COMPILER)
    for name in ("mock_engine", "load_generator"):
        command = [compiler, "-O2", "-Wall", "-o", str(folder / name), str(HERE / f"{name}.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotMeasure(f"{name}.c does not compile: {done.stderr.strip()[:500]}")


@contextlib.asynccontextmanager
async def mock_engine(
    folder: Path, cores: frozenset[int], *, listeners: int = 2, chunks: int = 50, pace_s: float = 0.02
) -> AsyncIterator[Engine]:
    """A mock engine for the length of the block."""
    arguments = (str(listeners), str(chunks), str(round(pace_s * 1e6)))
    with pinned(cores):
        process = await asyncio.create_subprocess_exec(
            folder / "mock_engine", *arguments, stdout=asyncio.subprocess.PIPE
        )
    try:
        assert process.stdout is not None, "asked for a pipe"
        ports = tuple(int(port) for port in (await process.stdout.readline()).split())
        if len(ports) != listeners:
            raise CannotMeasure("the mock engine did not start")
        yield Engine(process.pid, ports, chunks + 2)  # and one with the usage, and [DONE]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class LoadGenerator(msgspec.Struct, frozen=True):
    """Asks like clients with this key, and says what it saw."""

    folder: Path
    cores: frozenset[int]
    engine: Engine
    key: str

    async def run(self, port: int, load: Load, subject: Sequence[int] = ()) -> Sample:
        """One measurement; `subject` are the processes whose CPU counts. Raises `CannotMeasure`."""
        arguments = [
            *("-p", str(port), "-c", str(load.connections), "-e", str(load.events), "-k", self.key),
            *("-w", str(load.warm_up_s), "-t", str(load.measured_s), "-d", str(load.delay_s)),
            *("-i", str(self.engine.pid), "-s", ",".join(map(str, subject))),
        ]
        pipe = asyncio.subprocess.PIPE
        with pinned(self.cores):
            process = await asyncio.create_subprocess_exec(
                self.folder / "load_generator", *arguments, stdout=pipe, stderr=pipe
            )
        out, complaint = await process.communicate()
        if process.returncode:
            raise CannotMeasure(f"the load generator failed: {complaint.decode().strip()}")
        sample = msgspec.convert(json.loads(out), Sample)
        if sample.errors:
            raise CannotMeasure(
                f"{sample.errors} answers were wrong, the first: {complaint.decode().strip()}"
            )
        return sample
