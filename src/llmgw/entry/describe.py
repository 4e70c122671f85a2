"""Decides how `llmgw agent --describe` words a node for a person (A7).

Laws: unknown is `-`, nothing found is `none`; the first thing read on a new node, so nothing is left out.
"""

from collections.abc import Iterable

from llmgw.core.inventory import EngineInstall, Filesystem, Gpu, NodeReport
from llmgw.core.units import format_bytes


def describe_lines(node: NodeReport) -> list[str]:
    """What a node would report, one thing a line."""
    labels = [f"{name}={value}" for name, value in node.labels.items()]
    free, total = format_bytes(node.memory_available_bytes), format_bytes(node.memory_total_bytes)
    engines, weights = node.engines, node.weights
    return [
        *_rows("id", [node.id]),
        *_rows("address", [node.address]),
        *_rows("labels", [", ".join(labels)] if labels else []),
        *_rows("cpus", None if node.cpus is None else [str(node.cpus)]),
        *_rows("memory", [f"{free} free of {total}"]),
        *_rows("gpus", None if node.gpus is None else map(_gpu, node.gpus)),
        *_rows("fabrics", None if node.fabrics is None else [fabric.name for fabric in node.fabrics]),
        *_rows("engines", None if engines is None else [_engine(n, e) for n, e in engines.items()]),
        *_rows("disks", None if node.filesystems is None else map(_disk, node.filesystems)),
        *_rows(
            "weights",
            None if weights is None else [f"{f.path}  {format_bytes(f.size_bytes)}" for f in weights],
        ),
    ]


def _rows(title: str, found: Iterable[str] | None) -> list[str]:
    values = ["-"] if found is None else list(found) or ["none"]
    return [f"{'' if number else title:<9}{value}" for number, value in enumerate(values)]


def _gpu(gpu: Gpu) -> str:
    used, total = format_bytes(gpu.memory_used_bytes), format_bytes(gpu.memory_total_bytes)
    foreign = f", used by pid {', '.join(str(one.pid) for one in gpu.foreign)}" if gpu.foreign else ""
    return f"{gpu.index}: {gpu.gpu_class or '-'}  {gpu.product or '-'}  {used} used of {total}{foreign}"


def _engine(name: str, install: EngineInstall) -> str:
    where = install.path or "built in"
    module = f" (module {install.module})" if install.module else ""
    kind = f" = {install.kind}" if install.kind != name else ""
    return f"{name}{kind}  {install.version or '-'}  {where}{module}"


def _disk(disk: Filesystem) -> str:
    kind = {True: "shared", False: "local", None: "-"}[disk.shared]
    return f"{disk.path}  {format_bytes(disk.free_bytes)} free of {format_bytes(disk.total_bytes)}  {kind}"
