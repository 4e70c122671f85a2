"""Reads NVIDIA cards through NVML (A4).

Laws: no NVIDIA software, or no driver, is a machine without NVIDIA cards and no error; what an old driver
does not answer is unknown and does not lose the card; a process whose pid is not visible here is unknown,
not foreign (I3).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pynvml  # type: ignore[import-untyped]

from llmgw.core.gpu_class import gpu_class
from llmgw.core.inventory import ForeignProcess, Gpu

T = TypeVar("T")

_ABSENT = (
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION,
)


class CardsUnknown(Exception):
    """NVML is there and did not answer; the text is its error."""


class NvidiaCards:
    """The NVIDIA cards of this machine. Every call may block: never on the loop."""

    def __init__(self, marker: Mapping[str, str], written_class: str | None = None) -> None:
        self._marker = frozenset(f"{name}={value}".encode() for name, value in marker.items())
        self._class = written_class
        self._begun = False
        self._links: dict[int, tuple[int, ...] | None] = {}  # does not change while the machine is up

    def read(self) -> tuple[Gpu, ...]:
        """Every card as it is now; () without NVIDIA. Raises `CardsUnknown`."""
        try:
            if not self._begun:
                pynvml.nvmlInit()
                self._begun = True
            handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            return tuple(self._card(index, handle, handles) for index, handle in enumerate(handles))
        except pynvml.NVMLError as error:
            if error.value in _ABSENT:
                return ()
            self._end()  # a driver that was reloaded is met afresh
            raise CardsUnknown(str(error)) from error

    def _end(self) -> None:
        if self._begun:
            self._begun = False
            _ask(pynvml.nvmlShutdown)

    def _card(self, index: int, handle: Any, handles: list[Any]) -> Gpu:
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        product = _text(_ask(pynvml.nvmlDeviceGetName, handle))
        total = None if memory is None else int(memory.total)
        rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        if index not in self._links:
            self._links[index] = _links(index, handles)
        return Gpu(
            index=index,
            uuid=_text(_ask(pynvml.nvmlDeviceGetUUID, handle)),
            product=product,
            gpu_class=self._class or gpu_class(product, total),
            memory_total_bytes=total,
            memory_used_bytes=None if memory is None else int(memory.used),
            utilisation=None if rates is None else rates.gpu / 100,
            ecc_uncorrected=_ask(
                pynvml.nvmlDeviceGetTotalEccErrors,
                handle,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            foreign=self._foreign(handle),
            nvlink_peers=self._links[index],
        )

    def _foreign(self, handle: Any) -> tuple[ForeignProcess, ...] | None:
        running = _ask(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if running is None:
            return None
        found = []
        for process in running:
            name = _process_name(process.pid)
            if name is not None and not self._is_ours(process.pid):
                used = process.usedGpuMemory
                found.append(ForeignProcess(process.pid, None if used is None else int(used), name))
        return tuple(found)

    def _is_ours(self, pid: int) -> bool:
        try:
            held = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return self._marker <= frozenset(held.split(b"\0"))


def _ask(question: Callable[..., T], *about: Any) -> T | None:
    try:
        return question(*about)
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNINITIALIZED):
            raise
        return None  # not supported by this driver or card


def _links(index: int, handles: list[Any]) -> tuple[int, ...] | None:
    """Cards reached over NVLink, directly or through a switch; `None` when the driver does not say."""
    peers: list[int] = []
    for other, handle in enumerate(handles):
        if other == index:
            continue
        status = _ask(
            pynvml.nvmlDeviceGetP2PStatus, handles[index], handle, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        )
        if status is None:
            return None
        if status == pynvml.NVML_P2P_STATUS_OK:
            peers.append(other)
    return tuple(peers)


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _process_name(pid: int) -> str | None:
    """The name of a process, or `None` when it cannot be seen from here."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return None
