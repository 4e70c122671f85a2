"""Cards through NVML, with a library that answers as told."""

import os
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest

from llmgw.host.nvidia import CardsUnknown, NvidiaCards

GIB = 2**30


def fails(code: int) -> Callable[..., Any]:
    def ask(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    return ask


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any]], None]:
    """Two H100 joined by NVLink; the test replaces single answers."""

    def answer(name: str, how: Callable[..., Any]) -> None:
        monkeypatch.setattr(pynvml, name, how)

    answer("nvmlInit", lambda: None)
    answer("nvmlShutdown", lambda: None)
    answer("nvmlDeviceGetCount", lambda: 2)
    answer("nvmlDeviceGetHandleByIndex", lambda index: index)
    answer("nvmlDeviceGetName", lambda card: "NVIDIA H100 80GB HBM3")
    answer("nvmlDeviceGetUUID", lambda card: f"GPU-{card}")
    answer("nvmlDeviceGetMemoryInfo", lambda card: SimpleNamespace(total=80 * GIB, used=GIB))
    answer("nvmlDeviceGetUtilizationRates", lambda card: SimpleNamespace(gpu=25))
    answer("nvmlDeviceGetTotalEccErrors", lambda card, *_: 0)
    answer("nvmlDeviceGetComputeRunningProcesses", lambda card: [])
    answer("nvmlDeviceGetP2PStatus", lambda *_: pynvml.NVML_P2P_STATUS_OK)
    return answer


Library = Callable[[str, Callable[..., Any]], None]


def test_cards_are_read_whole(library: Library) -> None:
    first, second = NvidiaCards({}).read()
    assert (first.index, first.uuid, first.gpu_class) == (0, "GPU-0", "H100-80GB")
    assert (first.memory_total_bytes, first.memory_used_bytes) == (80 * GIB, GIB)
    assert (first.utilisation, first.ecc_uncorrected, first.foreign) == (0.25, 0, ())
    assert first.nvlink_peers == (1,) and second.nvlink_peers == (0,)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_without_nvidia_there_are_no_cards_and_no_error(library: Library, code: int) -> None:
    library("nvmlInit", fails(code))
    assert NvidiaCards({}).read() == ()


def test_what_an_old_driver_does_not_answer_is_unknown(library: Library) -> None:
    for question in (
        *("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetP2PStatus"),
        *("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMemoryInfo"),
    ):
        library(question, fails(pynvml.NVML_ERROR_NOT_SUPPORTED))
    card = NvidiaCards({}).read()[0]
    assert card.uuid == "GPU-0" and card.gpu_class == "H100"
    unknown = (card.utilisation, card.ecc_uncorrected, card.nvlink_peers, card.foreign)
    assert unknown == (None, None, None, None)


def test_a_lost_card_is_said_and_the_library_begun_anew(library: Library) -> None:
    begun: list[int] = []
    library("nvmlInit", lambda: begun.append(1))
    cards = NvidiaCards({})
    cards.read()
    library("nvmlDeviceGetMemoryInfo", fails(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(CardsUnknown):
        cards.read()
    with pytest.raises(CardsUnknown):
        cards.read()
    assert len(begun) == 2


def test_only_processes_that_are_seen_and_not_ours_are_foreign(library: Library) -> None:
    mark = {"LLMGW_TEST_CARD": str(os.getpid())}
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, **mark}) as ours:
        try:
            running = [
                SimpleNamespace(pid=ours.pid, usedGpuMemory=GIB),
                SimpleNamespace(pid=os.getpid(), usedGpuMemory=None),
                SimpleNamespace(pid=2**22 + 1, usedGpuMemory=GIB),  # of another pid namespace
            ]
            library("nvmlDeviceGetComputeRunningProcesses", lambda card: running)
            (foreign,) = NvidiaCards(mark).read()[0].foreign or ()
            assert (foreign.pid, foreign.memory_bytes) == (os.getpid(), None)
            assert foreign.name
        finally:
            ours.kill()


def test_a_written_class_wins(library: Library) -> None:
    assert NvidiaCards({}, "big").read()[0].gpu_class == "big"
