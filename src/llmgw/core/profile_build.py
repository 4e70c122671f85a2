"""Decides whether one profile of a model can be run as written, and resolves it (C1, C6, C16, E7).

Laws: what an engine cannot do is refused here, not discovered when a replica starts and serves from one
machine while the catalog believes it has several; every problem is reported.
"""

import re
from collections.abc import Mapping

from llmgw.core import defaults
from llmgw.core.catalog import EngineTraits, ModelDefinition, Profile, ProfileDefinition, SecretRef
from llmgw.core.fingerprint import fingerprint, is_cpu, usual_gpus_per_node
from llmgw.core.shape import DURATION, Problem, shown
from llmgw.core.units import GB, BadUnit, parse_duration

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
NAME_TEXT = "a name is letters, digits and . _ : / @ + -, and begins with a letter or digit"
_ARG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Notes:
    """Problems found so far, with a place to put the next; lives one build."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, path: str, value: object, text: str) -> None:
        """Note a problem; a value of `None` means nothing is written there."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # as it was written: reading made 2 a 2.0
        self.problems.append(Problem(path, "" if value is None else shown(path, value), text))

    def duration(self, path: str, text: str | None, default: float) -> float:
        """Seconds, or the default when nothing is written or what is written is wrong."""
        if text is None:
            return default
        try:
            return parse_duration(text)
        except BadUnit:
            self.add(path, text, f"expected {DURATION}")
            return default


def arg_key(name: str) -> str:
    """An argument's name as engines compare it: without leading dashes, `_` as `-`."""
    return name.lstrip("-").replace("_", "-")


def build_profile(
    model: ModelDefinition, written: ProfileDefinition, traits: EngineTraits, path: str, notes: Notes
) -> Profile:
    """The resolved profile; worth something only when nothing was added to `notes`."""
    _check_shape(written, traits, path, notes)
    _check_claims(written, path, notes)
    _check_args(written, traits, path, notes)
    _check_env(written.env, path, notes)
    if written.launch_mode is not None and written.launch_mode not in traits.launch_modes:
        accepted = " or ".join(traits.launch_modes)
        notes.add(f"{path}.launch_mode", written.launch_mode, f"{written.engine} has {accepted}")
    gpus = written.gpus_per_node
    return Profile(
        name=written.name,
        priority=written.priority,
        engine=written.engine,
        gpu_class=None if is_cpu(written) else written.gpu_class,
        nodes=written.nodes,
        gpus_per_node=usual_gpus_per_node(written) if gpus is None else gpus,
        tensor_parallel=written.tensor_parallel,
        pipeline_parallel=written.pipeline_parallel,
        launch_mode=written.launch_mode or traits.launch_modes[0],
        rdma=written.rdma,
        gpu_memory_bytes=_bytes(written.gpu_memory_gb),
        memory_bytes=_bytes(written.min_memory_gb),
        disk_bytes=_bytes(written.disk_gb),
        node_selector=tuple(sorted(written.node_selector.items())),
        args=written.args,
        env=written.env,
        startup_timeout_s=notes.duration(
            f"{path}.startup_timeout", written.startup_timeout, defaults.STARTUP_TIMEOUT_S
        ),
        fetch_timeout_s=None
        if written.fetch_timeout is None
        else notes.duration(f"{path}.fetch_timeout", written.fetch_timeout, 0.0),
        stall_timeout_s=notes.duration(
            f"{path}.stall_timeout", written.stall_timeout, defaults.STALL_TIMEOUT_S
        ),
        install=written.install,
        container=written.container,
        fingerprint=fingerprint(model, written),
    )


def _bytes(gigabytes: float | None) -> int | None:
    """An explicit 0 claims nothing, like nothing written (I4)."""
    return round(gigabytes * GB) if gigabytes else None


def _check_shape(written: ProfileDefinition, traits: EngineTraits, path: str, notes: Notes) -> None:
    sizes = {
        "nodes": written.nodes,
        "tensor_parallel": written.tensor_parallel,
        "pipeline_parallel": written.pipeline_parallel,
    }
    for key, size in sizes.items():
        if size < 1:
            notes.add(f"{path}.{key}", size, "must be at least 1")
    if written.gpus_per_node is not None and written.gpus_per_node < 0:
        notes.add(f"{path}.gpus_per_node", written.gpus_per_node, "must be at least 0")
    if min(*sizes.values(), 1 + (written.gpus_per_node or 0)) < 1:
        return  # the arithmetic below would only repeat it
    if traits.needs_gpu and written.gpu_class is None:
        notes.add(
            f"{path}.gpu_class",
            None,
            f"{traits.name} needs one, such as H100-80GB; a CPU build is asked for with gpu_class: cpu",
        )
        return
    if written.nodes > 1 and not traits.multi_node:
        notes.add(f"{path}.nodes", written.nodes, f"{traits.name} runs on one node; it must be 1")
    if not traits.tensor_parallel:
        for key in ("tensor_parallel", "pipeline_parallel"):
            if sizes[key] > 1:
                notes.add(f"{path}.{key}", sizes[key], f"{traits.name} does not split a model so; must be 1")
    if is_cpu(written):
        _check_cpu_arithmetic(written, traits, path, notes)
    else:
        _check_gpu_arithmetic(written, traits, path, notes)


def _check_cpu_arithmetic(written: ProfileDefinition, traits: EngineTraits, path: str, notes: Notes) -> None:
    if written.gpus_per_node:
        text = "a CPU profile has 0; write gpu_class for one that uses cards"
        notes.add(f"{path}.gpus_per_node", written.gpus_per_node, text)
    parallel = written.tensor_parallel * written.pipeline_parallel
    if traits.needs_gpu and parallel % written.nodes:
        text = f"tensor_parallel × pipeline_parallel is {parallel}, which must be a multiple of nodes"
        notes.add(f"{path}.nodes", written.nodes, text)


def _check_gpu_arithmetic(written: ProfileDefinition, traits: EngineTraits, path: str, notes: Notes) -> None:
    gpus = written.gpus_per_node
    if gpus == 0:
        notes.add(f"{path}.gpus_per_node", 0, "must be at least 1 with a gpu_class")
        return
    if not traits.tensor_parallel:
        return  # it spreads over the cards of one node by itself
    parallel = written.tensor_parallel * written.pipeline_parallel
    if gpus is None:
        if parallel % written.nodes:
            text = f"tensor_parallel × pipeline_parallel is {parallel}, which must be a multiple of nodes"
            notes.add(f"{path}.nodes", written.nodes, text)
    elif written.nodes * gpus != parallel:
        text = (
            f"nodes × gpus_per_node is {written.nodes} × {gpus} = {written.nodes * gpus}, but "
            f"tensor_parallel × pipeline_parallel is {written.tensor_parallel} × {written.pipeline_parallel} "
            f"= {parallel}; they must be equal"
        )
        notes.add(f"{path}.gpus_per_node", gpus, text)


def _check_claims(written: ProfileDefinition, path: str, notes: Notes) -> None:
    for key in ("min_memory_gb", "disk_gb"):
        amount = getattr(written, key)
        if amount is not None and amount < 0:
            notes.add(f"{path}.{key}", amount, "must be at least 0")
    share = written.gpu_memory_gb
    if share is not None and is_cpu(written):
        notes.add(f"{path}.gpu_memory_gb", share, "a CPU profile has no cards to share; remove it")
    elif share is not None and share <= 0:
        notes.add(f"{path}.gpu_memory_gb", share, "must be more than 0; leave it out for whole cards")


def _check_args(written: ProfileDefinition, traits: EngineTraits, path: str, notes: Notes) -> None:
    owned = {arg_key(name) for name in traits.owned_args}
    seen: dict[str, str] = {}
    for name, value in written.args.items():
        key = arg_key(name)
        if _ARG.fullmatch(key) is None:
            notes.add(f"{path}.args.{name}", value, "not an option's name; write it as option: value")
        elif key in owned:
            notes.add(
                f"{path}.args.{name}", value, f"llmgw sets this option of {traits.name} itself; remove it"
            )
        elif key in seen:
            notes.add(f"{path}.args.{name}", value, f"is the same option as {seen[key]}; keep one")
        seen.setdefault(key, name)


def _check_env(env: Mapping[str, str | SecretRef], path: str, notes: Notes) -> None:
    for name, value in env.items():
        where = f"{path}.env.{name}"
        if _ENV.fullmatch(name) is None:
            notes.add(where, None, "not a variable's name: letters, digits and _, not beginning with a digit")
        if isinstance(value, SecretRef) and (value.from_env is None) == (value.from_file is None):
            notes.add(where, None, "write either from_env or from_file")
