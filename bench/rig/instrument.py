"""Builds and runs the instrument: a mock engine and a load generator, one small C program.

It is C because whoever measures a proxy must not be busier than the proxy, and one process that never
sleeps while it measures because a proxy that has to wake it pays for that. It is compiled with the
machine's compiler into a scratch folder each time, which takes a second.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
NO_COMPILER = "the measurement compiles a small C program and found no `cc`: apt-get install gcc libc6-dev"


class CannotMeasure(Exception):
    """What is missing or went wrong, in one line."""


class Cores(msgspec.Struct, frozen=True):
    """Which cores the subject and the instrument run on, so that neither takes from the other."""

    subject: frozenset[int]
    instrument: frozenset[int]


class Load(msgspec.Struct, frozen=True):
    """What the clients do. `events` is 0 for plain answers. Seconds."""

    connections: int
    events: int
    warm_up_s: float
    measured_s: float
    delay_s: float = 0.0  # over which they begin


class Sample(msgspec.Struct, frozen=True):
    """What the load generator saw. Durations in seconds; CPU and busy seconds within the measured time."""

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
    engine_busy_s: float
    load_busy_s: float
    first_error: str


class Engine(msgspec.Struct, frozen=True):
    """The mock engine: one process behind several ports."""

    ports: tuple[int, ...]
    events: int  # that one stream brings, the closing ones included


def split_cores() -> Cores:
    """One core for the subject, the others for the instrument. Raises `CannotMeasure`."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise CannotMeasure(
            f"the subject and the instrument need a core each; this process may use {len(usable)}"
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
    """Compile the instrument into `folder`. Raises `CannotMeasure`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure(NO_COMPILER)
    sources = [str(HERE / f"{name}.c") for name in ("engine", "load", "instrument")]
    command = [compiler, "-O2", "-Wall", "-o", str(folder / "instrument"), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMeasure(f"the instrument does not compile: {done.stderr.strip()[:500]}")


class Instrument:
    """The running instrument."""

    def __init__(self, process: asyncio.subprocess.Process, engine: Engine) -> None:
        self._process = process
        self.engine = engine

    async def run(self, port: int, load: Load, key: str, subject: Sequence[int] = ()) -> Sample:
        """One measurement; `subject` are the processes whose CPU counts. Raises `CannotMeasure`."""
        pids = ",".join(map(str, subject)) or "-"
        order = (
            port,
            load.connections,
            load.events,
            load.warm_up_s,
            load.measured_s,
            load.delay_s,
            key,
            pids,
        )
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None and pipe_out is not None, "asked for pipes"
        pipe_in.write(" ".join(map(str, order)).encode() + b"\n")
        line = await pipe_out.readline()
        if not line:
            raise CannotMeasure("the instrument failed")
        sample = msgspec.json.decode(line, type=Sample)
        if sample.errors:
            raise CannotMeasure(f"{sample.errors} answers were wrong, the first: {sample.first_error}")
        return sample


@contextlib.asynccontextmanager
async def instrument(
    folder: Path, cores: frozenset[int], *, listeners: int = 2, chunks: int = 50, pace_s: float = 0.02
) -> AsyncIterator[Instrument]:
    """The instrument that was built into `folder`, for the length of the block."""
    arguments = (str(listeners), str(chunks), str(round(pace_s * 1e6)))
    pipe = asyncio.subprocess.PIPE
    with pinned(cores):
        process = await asyncio.create_subprocess_exec(
            folder / "instrument", *arguments, stdin=pipe, stdout=pipe
        )
    try:
        assert process.stdout is not None, "asked for a pipe"
        ports = tuple(int(port) for port in (await process.stdout.readline()).split())
        if len(ports) != listeners:
            raise CannotMeasure("the instrument did not start")
        yield Instrument(process, Engine(ports, chunks + 2))  # and one with the usage, and [DONE]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
