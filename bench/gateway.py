"""Measures what the gateway costs: a router process beside nginx and beside nothing, in one run.

One instrument plays the engine, behind two ports, and the clients. The subject has a core for itself, the
instrument another; subjects take turns and those that wait are stopped. Two loads: plain answers as fast
as they come (64 connections), and paced streams (200, an event each 20 ms) that saturate nobody. What
counts are the ratios within a round; each figure is the median over the rounds.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.facts import ROOT, save
from bench.rig.feeder import Feeder
from bench.rig.instrument import (
    CannotMeasure,
    Cores,
    Instrument,
    Load,
    Sample,
    build,
    instrument,
    pinned,
    split_cores,
)
from bench.rig.subjects import NO_NGINX, Site, Subject, busy_s, nginx, nginx_binary, router
from llmgw.core.accounts import make_key

CHUNKS = 50
PACE_S = 0.02
CONNECTIONS = 64
STREAMS = 200
EVENTS = CHUNKS + 2  # the engine's closing events come too
SATURATED = 0.9  # of a core; above it, it is the bottleneck
BUSY = 0.95  # of a core, whoever it was
# Between a measurement and stopping its subject: the ends of the connections are noticed.
SETTLE_S = 0.1


class Plan(msgspec.Struct, frozen=True):
    """How often and how long."""

    rounds: int
    plain: Load
    streams: Load


QUICK = Plan(
    rounds=3,
    plain=Load(CONNECTIONS, 0, warm_up_s=0.4, measured_s=1.2),
    streams=Load(STREAMS, EVENTS, warm_up_s=1.2, measured_s=1.6, delay_s=1.0),
)
WHOLE = Plan(
    rounds=5,
    plain=Load(CONNECTIONS, 0, warm_up_s=1.0, measured_s=4.0),
    streams=Load(STREAMS, EVENTS, warm_up_s=1.5, measured_s=5.0, delay_s=1.0),
)


class Measured(msgspec.Struct, frozen=True):
    """One sample with its circumstances. Shares are of one core, over the measured time."""

    subject: str
    load: str  # plain, streams
    sample: Sample
    subject_share: float
    instrument_share: float
    # Shares of the whole run that somebody else took: the core was busy and it was none of ours.
    others_on_subject_core: float
    rss_mb: float
    saturated: str


class Stand(msgspec.Struct, frozen=True):
    """Everything that runs during a measurement."""

    cores: Cores
    instrument: Instrument
    key: str
    subjects: tuple[Subject, ...]
    feeder: Feeder


@contextlib.asynccontextmanager
async def stand(folder: Path) -> AsyncIterator[Stand]:
    """Build and start everything; all subjects rest. Raises `CannotMeasure`."""
    cores = split_cores()
    build(folder)
    key = make_key(random.SystemRandom())
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(pinned(cores.instrument))
        tool = await stack.enter_async_context(
            instrument(folder, cores.instrument, chunks=CHUNKS, pace_s=PACE_S)
        )
        site = Site(folder, cores.subject, tool.engine, key)
        feeder = Feeder(tool.engine.ports, key)
        subjects = [Subject("direct", tool.engine.ports[0])]
        if nginx_binary() is not None:
            subjects.append(await stack.enter_async_context(nginx(site)))
        subjects.append(await stack.enter_async_context(router(site, feeder)))
        for subject in subjects:
            subject.rest()
        yield Stand(cores, tool, key.text, tuple(subjects), feeder)


async def measure(on: Stand, plan: Plan) -> list[Measured]:
    """All rounds. Raises `CannotMeasure`."""
    found = []
    for number in range(plan.rounds):
        for name, load in (("plain", plan.plain), ("streams", plan.streams)):
            for place in range(len(on.subjects)):  # another one begins each round
                subject = on.subjects[(place + number) % len(on.subjects)]
                found.append(await measure_one(on, subject, name, load))
    return found


async def measure_one(on: Stand, subject: Subject, name: str, load: Load) -> Measured:
    """One subject under one load."""
    subject.wake()
    busy, own = busy_s(on.cores.subject), subject.cpu_s()
    loop = asyncio.get_running_loop()
    began = loop.time()
    sample, rss_mb = await asyncio.gather(
        on.instrument.run(subject.port, load, on.key, subject.pids),
        _rss_under_load(subject, load),
    )
    took = loop.time() - began
    core_s = sum(busy_s(on.cores.subject).values()) - sum(busy.values())
    others = max(0.0, core_s - (subject.cpu_s() - own)) / took
    await asyncio.sleep(SETTLE_S)
    subject.rest()
    subject_share = sample.subject_cpu_s / sample.seconds
    instrument_share = (sample.engine_busy_s + sample.load_busy_s) / sample.seconds
    return Measured(
        subject.name,
        name,
        sample,
        round(subject_share, 3),
        round(instrument_share, 3),
        round(others, 3),
        round(rss_mb, 1),
        who_saturated(subject_share, instrument_share, others),
    )


async def _rss_under_load(subject: Subject, load: Load) -> float:
    await asyncio.sleep(load.warm_up_s + load.measured_s / 2)
    return subject.rss_mb()


def who_saturated(subject: float, instrument: float, others: float) -> str:
    """Which part had no time left; shares of one core."""
    if subject >= SATURATED:
        return "subject"
    if instrument >= SATURATED:
        return "instrument"
    if subject + others >= BUSY:
        return "others"
    return "nobody"


# ---------------------------------------------------------------- what it says


def summary(found: Sequence[Measured]) -> dict[str, Any]:
    """Medians and ratios; `None` where there was nothing to compare with."""
    names = list(dict.fromkeys(measured.subject for measured in found))
    return {
        "ratio_nginx": _ratio(found, "plain", "router", "nginx", requests_per_s),
        "ratio_vllm_router": None,
        "ratio_sglang_router": None,
        "chunk_cpu_ratio_nginx": _ratio(found, "streams", "router", "nginx", chunk_cpu_us),
        "request_cpu_ratio_nginx": _ratio(found, "plain", "router", "nginx", request_cpu_us),
        "first_chunk_added_p50_s": _added_first_chunk(found, "router"),
        "subjects": {name: _about(found, name) for name in names},
        "samples": [msgspec.to_builtins(measured) for measured in found],
    }


def requests_per_s(measured: Measured) -> float:
    """Plain answers a second."""
    return measured.sample.requests / measured.sample.seconds


def request_cpu_us(measured: Measured) -> float:
    """CPU a plain answer took of the subject, us."""
    return measured.sample.subject_cpu_s / measured.sample.requests * 1e6


def chunk_cpu_us(measured: Measured) -> float:
    """CPU an event of a paced stream took of the subject, us."""
    return measured.sample.subject_cpu_s / measured.sample.events * 1e6


def first_chunk_s(measured: Measured) -> float:
    """Median time from the request to the first event."""
    return measured.sample.first_event_p50_s or 0.0


def _about(found: Sequence[Measured], name: str) -> dict[str, Any]:
    mine = [measured for measured in found if measured.subject == name]
    plain = [measured for measured in mine if measured.load == "plain"]
    streams = [measured for measured in mine if measured.load == "streams"]
    return {
        "requests_per_s": round(statistics.median(map(requests_per_s, plain))),
        "request_cpu_us": round(statistics.median(map(request_cpu_us, plain)), 1),
        "latency_p50_s": statistics.median(measured.sample.latency_p50_s or 0.0 for measured in plain),
        "chunk_cpu_us": round(statistics.median(map(chunk_cpu_us, streams)), 1),
        "first_chunk_p50_s": round(statistics.median(map(first_chunk_s, streams)), 6),
        "first_chunk_added_p50_s": None if name == "direct" else _added_first_chunk(found, name),
        "gap_p99_s": round(statistics.median(measured.sample.gap_p99_s or 0.0 for measured in streams), 5),
        "rss_mb": statistics.median(measured.rss_mb for measured in streams),
        "saturated_plain": statistics.mode(measured.saturated for measured in plain),
        "saturated_streams": statistics.mode(measured.saturated for measured in streams),
    }


def _rounds(found: Sequence[Measured], load: str, name: str) -> list[Measured]:
    return [measured for measured in found if (measured.load, measured.subject) == (load, name)]


def _ratio(
    found: Sequence[Measured], load: str, name: str, to: str, figure: Callable[[Measured], float]
) -> float | None:
    """Median over the rounds of one subject's figure as a share of another's in the same round."""
    pairs = list(zip(_rounds(found, load, name), _rounds(found, load, to), strict=False))
    return round(statistics.median(figure(a) / figure(b) for a, b in pairs), 3) if pairs else None


def _added_first_chunk(found: Sequence[Measured], name: str) -> float | None:
    pairs = list(zip(_rounds(found, "streams", name), _rounds(found, "streams", "direct"), strict=False))
    return round(statistics.median(first_chunk_s(a) - first_chunk_s(b) for a, b in pairs), 6)


async def run(plan: Plan) -> dict[str, Any]:
    """The whole measurement. Raises `CannotMeasure`."""
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        async with stand(Path(folder)) as on:
            result = summary(await measure(on, plan))
            rows = {"stored": on.feeder.rows_stored, "lost": on.feeder.rows_lost}
    return {
        **{name: value for name, value in result.items() if name != "samples"},
        "rounds": plan.rounds,
        "connections": plan.plain.connections,
        "streams": plan.streams.connections,
        "pace_s": PACE_S,
        "usage_rows": rows,
        "load_average_before": round(load_average, 2),
        "samples": result["samples"],
    }


def main() -> int:
    """Run the measurement and write bench/results/gateway.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter rounds, below 50 s in all")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if nginx_binary() is None:
        print(NO_NGINX, file=sys.stderr)
    try:
        result = asyncio.run(run(QUICK if options.quick else WHOLE))
    except CannotMeasure as why:
        print(f"bench.gateway: {why}", file=sys.stderr)
        return 1
    path = save("gateway", result)
    brief = {name: value for name, value in result.items() if name != "samples"}
    print(json.dumps(result if options.json else brief, indent=None if options.json else 1))
    print(f"wrote {path.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
