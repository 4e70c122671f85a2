"""Runs the simulated engine as a process: `python -m llmgw.entry.simengine`, or `llmgw sim-engine`.

Laws: the key comes from the environment; a busy port and an impossible option are one line and a non-zero
exit; SIGTERM stops it at once, like an engine that does not drain.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable
from typing import TypeVar

from llmgw.engines.sim import KEY_ENV
from llmgw.entry.process import CannotRun, Stop, configure_logging, run_role
from llmgw.host.clock import SystemClock
from llmgw.host.netports import port_free
from llmgw.net.http1.server import HttpListener
from llmgw.simengine.engine import SimEngine
from llmgw.simengine.options import SimOptions

N = TypeVar("N", int, float)

CRASHED = 1


def main(argv: list[str]) -> int:
    """Serve until SIGTERM."""
    given = parser().parse_args(argv)
    configure_logging("sim-engine")
    options = SimOptions(
        model=given.model,
        key=os.environ.get(KEY_ENV, ""),
        context_length=given.context_length,
        slots=given.slots,
        prefill_rate=given.prefill_rate,
        decode_rate=given.decode_rate,
        answer_tokens=given.answer_tokens,
        startup_s=given.startup,
        crash_after=given.crash_after,
        hang_after=given.hang_after,
        garbage_after=given.garbage_after,
        oom=given.oom,
    )
    return run_role(lambda stop: serve(options, f"{given.host}:{given.port}", stop))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    usual = SimOptions("")
    made = argparse.ArgumentParser(prog="llmgw sim-engine", description="An engine without a model.")
    made.add_argument("--model", required=True)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--context-length", type=_positive(int), default=usual.context_length)
    made.add_argument("--slots", type=_positive(int), default=usual.slots, help="requests at a time")
    rate = _positive(float)
    made.add_argument("--prefill-rate", type=rate, default=usual.prefill_rate, help="tokens a second")
    made.add_argument("--decode-rate", type=rate, default=usual.decode_rate, help="tokens a second, each")
    made.add_argument("--answer-tokens", type=_positive(int), default=usual.answer_tokens)
    made.add_argument("--startup", type=float, default=usual.startup_s, help="seconds until it is healthy")
    made.add_argument("--crash-after", type=int, default=0, help="requests; it dies amid the last one")
    made.add_argument("--hang-after", type=int, default=0, help="requests")
    made.add_argument("--garbage-after", type=int, default=0, help="requests")
    made.add_argument("--oom", action=argparse.BooleanOptionalAction, default=False, help="do not start")
    return made


def _positive(kind: Callable[[str], N]) -> Callable[[str], N]:
    def read(text: str) -> N:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not more than 0")
        return value

    return read


async def serve(options: SimOptions, address: str, stop: Stop) -> int:
    """Serve until asked to stop. Raises `CannotRun`."""
    if options.oom:
        raise CannotRun("simulated out of memory: no room for the weights")
    host, _, port = address.rpartition(":")
    if not port_free(host.strip("[]"), int(port)):  # the listener itself would share it (SO_REUSEPORT)
        raise CannotRun(f"cannot listen on {address}: address already in use")
    engine = SimEngine(options, SystemClock(), random.SystemRandom(), lambda: os._exit(CRASHED))
    try:
        serving = await HttpListener(SystemClock()).serve(address, engine.handle)
    except OSError as error:
        raise CannotRun(f"cannot listen on {address}: {error.strerror or error}") from error
    print(f"simulated engine listening on {serving.address}", flush=True)
    await stop.requested.wait()
    await serving.aclose()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
