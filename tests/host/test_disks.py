"""Filesystems and weight files."""

from pathlib import Path

import pytest

from llmgw.core.inventory import WeightFile
from llmgw.host import disks
from llmgw.host.disks import Mount, filesystem, mounts_of, weight_files

TABLE = """\
/dev/sda1 / ext4 rw 0 0
filer:/models /models nfs4 rw 0 0
/dev/sdb1 /data\\040one xfs rw 0 0
old /var/x ext4 rw 0 0
new /var/x tmpfs rw 0 0
"""


def test_two_directories_on_one_disk_are_one_filesystem(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    folders = [
        Path("/models/a"),
        Path("/models/b"),
        Path("/var/lib/w"),
        Path("/modelsx"),
        Path("/data one/w"),
    ]
    found = {mount.path: mount.kind for mount in mounts_of(folders, table)}
    assert found == {"/models": "nfs4", "/": "ext4", "/data one": "xfs"}


def test_of_mounts_on_one_place_the_last_counts(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(TABLE)
    assert mounts_of([Path("/var/x/y")], table) == (Mount("/var/x", "tmpfs"),)


@pytest.mark.parametrize(("kind", "shared"), [("nfs4", True), ("ext4", False), ("unheard-of", False)])
def test_shared_or_local_is_judged_by_type(tmp_path: Path, kind: str, shared: bool) -> None:
    found = filesystem(Mount(str(tmp_path), kind))
    assert found.shared is shared
    assert found.free_bytes is not None and found.total_bytes is not None
    assert 0 < found.free_bytes <= found.total_bytes


def test_weight_files_are_found_by_name_under_every_directory(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "m.gguf").write_bytes(b"12345")
    (tmp_path / "a" / "M.SAFETENSORS").write_bytes(b"1")
    (tmp_path / "a" / "readme.txt").write_bytes(b"1")
    (tmp_path / "dangling.gguf").symlink_to("/nowhere")
    (tmp_path / "linked.gguf").symlink_to(tmp_path / "a" / "b" / "m.gguf")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert weight_files([tmp_path, tmp_path / "missing"]) == (
        WeightFile(str(tmp_path / "a/M.SAFETENSORS"), 1),
        WeightFile(str(tmp_path / "a/b/m.gguf"), 5),
        WeightFile(str(tmp_path / "linked.gguf"), 5),
    )


def test_a_scan_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "FILES_MAX", 3)
    for number in range(5):
        (tmp_path / f"{number}.gguf").write_bytes(b"1")
    assert len(weight_files([tmp_path])) == 3
