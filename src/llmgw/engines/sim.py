"""Decides how llmgw's own simulated engine is started and read (E4).

Laws: it comes with llmgw, needs no weights and no cards, and says on its own `/v1/models` that it is
simulated; it exports vLLM's metric names; the key travels in the environment.
"""

import re
from typing import Final

from llmgw.core.catalog import EngineTraits
from llmgw.core.reason import Explained, Failure
from llmgw.core.weights import Weights
from llmgw.engines.adapter import VLLM_METRICS, Command, Exit, Launch, Locate
from llmgw.engines.arguments import command_line, plain_args
from llmgw.engines.exits import Known, explain

OWNED: Final = frozenset({"host", "port", "model", "key-env", "context-length"})
KEY_ENV = "LLMGW_SIM_KEY"

_KNOWN = (
    Known(Failure.OUT_OF_MEMORY, re.compile(r"simulated out of memory"), "simulated: not enough memory"),
    Known(Failure.PORT_BUSY, re.compile(r"address already in use"), "the port was taken by another process"),
    Known(
        Failure.BAD_PROFILE,
        re.compile(r"unrecognized arguments: (?P<what>.*)|error: argument (?P<other>.*)"),
        "the engine does not accept an option in the profile's args",
    ),
)


class Sim:
    """The `sim` adapter."""

    traits = EngineTraits(
        name="sim", needs_gpu=False, multi_node=False, tensor_parallel=True, owned_args=OWNED
    )
    locate = Locate(built_in=True)
    metrics = VLLM_METRICS
    health_path = "/health"
    weights = Weights.NONE

    def serves_http(self, rank: int) -> bool:
        """Rank 0 serves."""
        return rank == 0

    def refuse(self, launch: Launch) -> Explained | None:
        """Shapes it does not simulate."""
        if launch.shard_count > 1:
            text = f"a simulated replica on {launch.shard_count} nodes is not available in this version"
            return Explained(Failure.BAD_PROFILE, text)
        return None

    def commands(self, launch: Launch) -> tuple[Command, ...]:
        """One process of llmgw itself."""
        context = () if launch.context_length is None else ("--context-length", str(launch.context_length))
        argv = (
            *(launch.python, "-P", "-m", "llmgw.entry.simengine"),
            *("--model", launch.model, "--host", launch.address, "--port", str(launch.port)),
            *context,
            *command_line(plain_args(launch.args)),
        )
        env = {**launch.env, KEY_ENV: launch.engine_key} if launch.engine_key else dict(launch.env)
        return (Command(argv, env),)

    def explain_exit(self, exit: Exit) -> Explained:
        """Recognise its messages."""
        return explain("the simulated engine", exit, _KNOWN)
