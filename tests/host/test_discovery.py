"""A node described: everything found, nothing waited for."""

import asyncio
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from llmgw.core.inventory import Filesystem, Gpu
from llmgw.host import disks
from llmgw.host.discovery import HostDescription, HostProbe, Remembered
from llmgw.host.installed import EngineSearch
from llmgw.host.nvidia import CardsUnknown, NvidiaCards
from llmgw.host.offloop import OffLoop


def described(folder: Path) -> HostDescription:
    return HostDescription(
        id="n1",
        servers=("127.0.0.1:9",),
        version="1",
        engines=EngineSearch("/nowhere", sys.executable),
        marker={"LLMGW_MARK_AGENT": "n1"},
        state_dir=folder,
        weights_dir=folder / "weights",
    )


async def test_this_machine_is_described(tmp_path: Path) -> None:
    report = await HostProbe(described(tmp_path), OffLoop()).report()
    assert (report.id, report.address) == ("n1", "127.0.0.1")
    assert report.cpus and report.memory_total_bytes and report.memory_available_bytes
    assert report.gpus is not None and report.weights == () and report.fabrics is None
    assert report.filesystems is not None and report.filesystems[0].free_bytes
    assert report.engines is not None and "sim" in report.engines


async def test_what_is_written_wins(tmp_path: Path) -> None:
    written = msgspec.structs.replace(described(tmp_path), address="10.9.8.7", gpus=False, labels={"a": "b"})
    report = await HostProbe(written, OffLoop()).report()
    assert (report.address, report.gpus, report.labels) == ("10.9.8.7", (), {"a": "b"})


async def test_a_card_that_cannot_be_asked_is_unknown_and_cuts_nothing_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: NvidiaCards) -> tuple[Gpu, ...]:
        raise CardsUnknown("GPU is lost")

    monkeypatch.setattr(NvidiaCards, "read", broken)
    report = await HostProbe(described(tmp_path), OffLoop()).report()
    assert report.gpus is None
    assert report.engines and report.filesystems


async def test_a_disk_that_hangs_is_told_with_the_age_of_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = HostProbe(described(tmp_path), OffLoop(), quick_s=0.5)
    first = await probe.vitals(range(0))
    assert first.stale_s == {} and first.filesystems is not None
    stuck = threading.Event()

    def hangs(mount: disks.Mount) -> Filesystem:
        stuck.wait()
        return Filesystem(mount.path)

    monkeypatch.setattr(disks, "filesystem", hangs)
    try:
        second = await probe.vitals(range(0))
        assert second.filesystems == first.filesystems
        assert second.stale_s["filesystems"] > 0
        assert second.memory_total_bytes == first.memory_total_bytes
    finally:
        stuck.set()


async def test_a_look_that_hangs_is_not_begun_again_until_it_ended() -> None:
    stuck = threading.Event()
    begun: list[int] = []

    def look() -> int:
        begun.append(1)
        stuck.wait(10)
        return len(begun)

    remembered = Remembered("it", OffLoop(), look, 0.02)
    for _ in range(3):
        assert await remembered.read() == (None, 0.0)
    assert len(begun) == 1
    stuck.set()
    async with asyncio.timeout(5):
        while (await remembered.read())[0] is None:
            pass  # each read gives the thread its turn
    assert await remembered.read() == (len(begun), 0.0)
