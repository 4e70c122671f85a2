"""Serves a model with the llama.cpp build of the `xllamacpp` package, behind `llama-server`'s command line.

Laws: the options are llama-server's, under its names; one the package cannot set is refused, never
ignored; what is wrong (no model, a damaged one, a busy port, a missing library) is one line after
llama.cpp's own messages, never a traceback; the key comes from LLAMA_API_KEY; SIGTERM ends it at once.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

KEY_ENV = "LLAMA_API_KEY"
USAGE = 2


class Option(msgspec.Struct, frozen=True):
    """A value option: its spellings after the first are aliases; `field` is a path into the parameters."""

    names: tuple[str, ...]
    field: str
    read: Callable[[str], Any] = int
    enum: str = ""  # the package's enumeration and the prefix of its members, as ENUM:PREFIX


class Switch(msgspec.Struct, frozen=True):
    """An option that is on or off; `inverted` when the field says the opposite of the name."""

    names: tuple[str, ...]
    field: str
    inverted: bool = False


def _gpu_layers(text: str) -> int:
    return {"auto": -1, "all": -2}.get(text) or int(text)


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


OPTIONS: Final = (
    Option(("-c", "--ctx-size"), "n_ctx"),
    Option(("-np", "--parallel"), "n_parallel"),
    Option(("-b", "--batch-size"), "n_batch"),
    Option(("-ub", "--ubatch-size"), "n_ubatch"),
    Option(("-t", "--threads"), "cpuparams.n_threads"),
    Option(("-tb", "--threads-batch"), "cpuparams_batch.n_threads"),
    Option(("-n", "--predict", "--n-predict"), "n_predict"),
    Option(("-ngl", "--gpu-layers", "--n-gpu-layers"), "n_gpu_layers", _gpu_layers),
    Option(("-mg", "--main-gpu"), "main_gpu"),
    Option(("-sm", "--split-mode"), "split_mode", str, "llama_split_mode:LLAMA_SPLIT_MODE_"),
    Option(("-ts", "--tensor-split"), "tensor_split", _floats),
    Option(("-ctk", "--cache-type-k"), "cache_type_k", str, "ggml_type:GGML_TYPE_"),
    Option(("-ctv", "--cache-type-v"), "cache_type_v", str, "ggml_type:GGML_TYPE_"),
    Option(("-lm", "--load-mode"), "load_mode", str, "llama_load_mode:LLAMA_LOAD_MODE_"),
    Option(("-cram", "--cache-ram"), "cache_ram_mib"),
    Option(("-ctxcp", "--ctx-checkpoints"), "n_ctx_checkpoints"),
    Option(("--cache-reuse",), "n_cache_reuse"),
    Option(("--keep",), "n_keep"),
    Option(("--threads-http",), "n_threads_http"),
    Option(("--pooling",), "pooling_type", str, "llama_pooling_type:LLAMA_POOLING_TYPE_"),
    Option(("--chat-template",), "chat_template", str),
    Option(("-mm", "--mmproj"), "mmproj.path", str),
    Option(("--rope-freq-base",), "rope_freq_base", float),
    Option(("--rope-freq-scale",), "rope_freq_scale", float),
    Option(("--yarn-orig-ctx",), "yarn_orig_ctx"),
    Option(("--slot-prompt-similarity", "-sps"), "slot_prompt_similarity", float),
    Option(("--sleep-idle-seconds",), "sleep_idle_seconds"),
    Option(("--sse-ping-interval",), "sse_ping_interval"),
    Option(("-lv", "--verbosity", "--log-verbosity"), "verbosity"),
)

SWITCHES: Final = (
    Switch(("--jinja",), "use_jinja"),
    Switch(("--metrics",), "endpoint_metrics"),
    Switch(("--slots",), "endpoint_slots"),
    Switch(("--props",), "endpoint_props"),
    Switch(("--embeddings", "--embedding"), "embedding"),
    Switch(("-kvu", "--kv-unified"), "kv_unified"),
    Switch(("-cb", "--cont-batching"), "cont_batching"),
    Switch(("--cache-prompt",), "cache_prompt"),
    Switch(("--cache-idle-slots",), "cache_idle_slots"),
    Switch(("--context-shift",), "ctx_shift"),
    Switch(("--warmup",), "warmup"),
    Switch(("--ui", "--webui"), "ui"),
    Switch(("--check-tensors",), "check_tensors"),
    Switch(("--swa-full",), "swa_full"),
    Switch(("--kv-offload",), "no_kv_offload", inverted=True),
    Switch(("--op-offload",), "no_op_offload", inverted=True),
    Switch(("--repack",), "no_extra_bufts", inverted=True),
    Switch(("--perf",), "no_perf", inverted=True),
)

CONVERSIONS: Mapping[str, str] = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="llama-server (xllamacpp)", allow_abbrev=False)
    made.add_argument("--version", action="store_true")
    made.add_argument("-m", "--model")
    made.add_argument("-a", "--alias")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, required=False)
    made.add_argument("-fa", "--flash-attn", choices=sorted(CONVERSIONS))
    made.add_argument("-fit", "--fit", choices=("on", "off"))
    made.add_argument("--lora", action="append", default=[])
    made.add_argument("-v", "--verbose", action="store_true")
    for option in OPTIONS:
        made.add_argument(*option.names, dest=option.field, type=option.read)
    for switch in SWITCHES:
        made.add_argument(*switch.names, dest=switch.field, action=argparse.BooleanOptionalAction)
    return made


def main() -> int:
    """Serve until SIGTERM. Returns only what could not be started; 0 after `--version`."""
    args = parser().parse_args()
    try:
        import xllamacpp  # type: ignore[import-untyped]
    except ImportError as error:
        hint = ": install the package libgomp1" if "libgomp" in str(error) else ""
        return _cannot(f"the xllamacpp package does not load: {error}{hint}")
    if args.version:
        print("xllamacpp", xllamacpp.__version__)
        return 0
    if args.model is None or args.port is None:
        return _cannot("--model and --port are needed", USAGE)
    if not Path(args.model).is_file():
        return _cannot(f"there is no model file at {args.model}")
    try:
        parameters = settings(xllamacpp, args)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        return _cannot(f"invalid argument: {error}", USAGE)
    # Loading is one call into C++, which would delay a handler of ours: the signal's own action ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        server = xllamacpp.Server(parameters)
    except RuntimeError:
        return _cannot(f"llama.cpp could not serve {args.model}; its messages above say why")
    # Destroying the server waits for open streams while holding the interpreter: leave without it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    print("listening on", server.listening_address, flush=True)
    while True:
        signal.pause()


def settings(xllamacpp: Any, args: argparse.Namespace) -> Any:
    """The package's parameters for a command line. Raises `ValueError` for a value it does not know."""
    made = xllamacpp.CommonParams()
    made.model.path = args.model
    made.hostnames = [args.host]
    made.port = args.port
    if args.alias:
        made.model_alias = {name.strip() for name in args.alias.split(",")}
    key = os.environ.get(KEY_ENV)
    if key:
        made.api_keys = [key]
    if args.flash_attn:
        name = f"LLAMA_FLASH_ATTN_TYPE_{CONVERSIONS[args.flash_attn]}"
        made.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, name)
    if args.fit:
        made.fit_params = args.fit == "on"
    if args.verbose:
        made.verbosity = 5
    for option in OPTIONS:
        value = getattr(args, option.field)
        if value is not None:
            _set(made, option.field, _member(xllamacpp, option, value))
    for switch in SWITCHES:
        value = getattr(args, switch.field)
        if value is not None:
            _set(made, switch.field, value != switch.inverted)
    if args.lora:
        made.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(path, 1.0) for path in args.lora]
    return made


def _member(xllamacpp: Any, option: Option, value: Any) -> Any:
    if not option.enum:
        return value
    enum, prefix = option.enum.split(":")
    kinds = getattr(xllamacpp, enum)
    found = getattr(kinds, prefix + str(value).upper(), None)
    if found is None:
        known = sorted(n.removeprefix(prefix).lower() for n in dir(kinds) if n.startswith(prefix))
        raise ValueError(f"{option.names[-1]} {value}; known are {', '.join(known)}")
    return found


def _set(target: Any, field: str, value: Any) -> None:
    *path, last = field.split(".")
    for part in path:
        target = getattr(target, part)
    if last == "tensor_split":  # a fixed-size array: the rest stays 0
        value = [*value, *[0.0] * (len(target.tensor_split) - len(value))]
    setattr(target, last, value)


def _cannot(text: str, status: int = 1) -> int:
    print(f"error: {text}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    # Through the interpreter's end: llama.cpp's own log is written by a thread that is joined there.
    sys.exit(main())
