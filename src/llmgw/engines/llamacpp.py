"""Decides how llama.cpp's server is found, started and read (E3).

Laws: one node, and no tensor-parallel split of ours (it spreads over local cards by itself); a real
`llama-server` is preferred to the build a Python package brings; the port, host, name and key are
always written by us; the key travels in the environment (A17a).
"""

import re
from collections.abc import Mapping
from typing import Final

from llmgw.core.catalog import ArgValue, EngineTraits
from llmgw.core.reason import Explained, Failure
from llmgw.core.weights import Weights
from llmgw.engines.adapter import Command, Exit, Launch, Locate, MetricNames
from llmgw.engines.arguments import command_line, plain_args
from llmgw.engines.exits import Known, explain

# Short forms people know from llama-server's help, under the names used here.
LONG_NAMES: Mapping[str, str] = {
    "a": "alias", "b": "batch-size", "c": "ctx-size", "cb": "cont-batching", "ctk": "cache-type-k",
    "ctv": "cache-type-v", "embedding": "embeddings", "fa": "flash-attn", "kvu": "kv-unified",
    "m": "model", "mm": "mmproj", "n": "predict", "n-gpu-layers": "gpu-layers", "n-predict": "predict",
    "ngl": "gpu-layers", "np": "parallel", "sm": "split-mode", "t": "threads", "tb": "threads-batch",
    "ts": "tensor-split", "ub": "ubatch-size", "v": "verbose",
}  # fmt: skip

OWNED: Final = frozenset(
    {
        *("a", "alias", "api-key", "api-key-file", "api-prefix", "host", "metrics", "m", "model", "port"),
        *("models-dir", "models-preset", "models-preset-hf", "mu", "model-url", "reuse-port"),
        *("hf", "hfr", "hf-repo", "hff", "hf-file", "hft", "hf-token", "ssl-key-file", "ssl-cert-file"),
        *("log-file", "log-disable", "version", "help"),
    }
)

# What llama-server chooses itself when nothing is said about slots: four that share one cache.
SLOTS = 4

_KNOWN = (
    Known(
        Failure.PORT_BUSY,
        re.compile(r"couldn't bind HTTP server socket"),
        "the port was taken by another process between the check and the engine's start",
    ),
    Known(
        Failure.WEIGHTS_BAD,
        re.compile(
            r"gguf_init_from_\w+: (?P<what>.*)|error loading model: (?P<other>.*not within the file bounds.*)"
            r"|invalid magic|corrupted or incomplete"
        ),
        "the model file is damaged or incomplete; copy it again",
    ),
    Known(
        Failure.OUT_OF_MEMORY,
        re.compile(
            r"cudaMalloc failed: out of memory|failed to allocate (?:\S+ )*buffer"
            r"|unable to allocate \S+ buffer|std::bad_alloc|ErrorOutOfDeviceMemory"
            r"|failed to create context with model"
        ),
        "not enough memory for the model and its context; lower ctx-size, parallel or gpu-layers",
    ),
    Known(
        Failure.ENGINE_NOT_INSTALLED,
        re.compile(r"(?P<what>lib\w+\.so[.\d]*): cannot open shared object file"),
        "a system library the engine needs is missing; install it (libgomp.so.1 is in libgomp1)",
    ),
    Known(
        Failure.WEIGHTS_BAD,
        re.compile(r"unknown model architecture: (?P<what>'.*')"),
        "this build of llama.cpp does not know the model's architecture; install a newer one",
    ),
    Known(
        Failure.WEIGHTS_BAD,
        re.compile(r"failed to load model|error loading model"),
        "llama.cpp could not load the model file",
    ),
    Known(
        Failure.BAD_PROFILE,
        re.compile(r"error: invalid argument: (?P<what>.*)|unrecognized arguments: (?P<other>.*)"),
        "the engine does not know an option in the profile's args",
    ),
)


class LlamaCpp:
    """The `llama.cpp` adapter."""

    traits = EngineTraits(
        name="llama.cpp", needs_gpu=False, multi_node=False, tensor_parallel=False, owned_args=OWNED
    )
    locate = Locate(
        binaries=("llama-server",),
        archives=(
            "/opt/llama.cpp*/llama-server",
            "/opt/llama.cpp*/bin/llama-server",
            "/opt/llama.cpp*/build/bin/llama-server",
            "/opt/llama-*/llama-server",
            "/opt/llama-*/bin/llama-server",
            "/opt/llama-*/build/bin/llama-server",
            "/usr/local/llama.cpp*/llama-server",
            "/usr/local/llama.cpp*/bin/llama-server",
            "/usr/local/lib/llama.cpp*/llama-server",
        ),
        modules=("xllamacpp",),
    )
    metrics = MetricNames(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        generated_tokens="llamacpp:tokens_predicted_total",
        prompt_tokens="llamacpp:prompt_tokens_total",
    )
    health_path = "/health"
    weights = Weights.GGUF

    def serves_http(self, rank: int) -> bool:
        """There is one rank, and it serves."""
        return rank == 0

    def refuse(self, launch: Launch) -> Explained | None:
        """Shapes it cannot have."""
        if launch.shard_count > 1:
            return Explained(Failure.BAD_PROFILE, f"llama.cpp runs on one node, not {launch.shard_count}")
        if launch.tensor_parallel > 1 or launch.pipeline_parallel > 1:
            return Explained(Failure.BAD_PROFILE, "llama.cpp takes no tensor_parallel or pipeline_parallel")
        if "," in launch.model:  # its --alias is a comma-separated list
            return Explained(
                Failure.BAD_PROFILE, f"llama.cpp cannot serve a name with a comma: {launch.model}"
            )
        return None

    def commands(self, launch: Launch) -> tuple[Command, ...]:
        """`llama-server`, or the same command line for the Python package's server."""
        assert launch.model_path is not None, "validated before"
        install = launch.install
        if install.module is None:
            start: tuple[str, ...] = (install.path or self.locate.binaries[0],)
        else:
            # -P: no module of the working directory may stand in for ours.
            start = (install.path or launch.python, "-P", "-m", "llmgw.entry.llamacpp_wheel")
        argv = (
            *start,
            *("--model", launch.model_path, "--alias", launch.model),
            *("--host", launch.address, "--port", str(launch.port)),
            *command_line(_arguments(launch)),
            "--metrics",
        )
        env = {**launch.env, "LLAMA_API_KEY": launch.engine_key} if launch.engine_key else dict(launch.env)
        return (Command(argv, env),)

    def explain_exit(self, exit: Exit) -> Explained:
        """Recognise its messages."""
        return explain("llama.cpp", exit, _KNOWN)


def _arguments(launch: Launch) -> dict[str, ArgValue]:
    """The profile's args, with what must not be left to a default that changes between builds."""
    args = plain_args(launch.args, LONG_NAMES)
    slots = args.get("parallel")
    if slots is None:
        args["parallel"] = SLOTS
        args.setdefault("kv-unified", True)
    if "ctx-size" not in args and launch.context_length is not None:
        # A slot's context is ctx-size ÷ parallel, unless the slots share one cache.
        shared = slots is None or args.get("kv-unified") is True
        each = 1 if shared or not isinstance(slots, int) else slots
        args["ctx-size"] = launch.context_length * each
    args.setdefault("jinja", True)
    return args
