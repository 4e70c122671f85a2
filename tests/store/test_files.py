"""Judges where a database file may lie."""

from pathlib import Path

import pytest

from llmgw.ports import StoreUnavailable
from llmgw.store import files

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/ann/fast xfs rw 0 0
server:/my\\040data /my\\040data nfs rw 0 0
torn line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"),
        ("/home/ann", "nfs4"),
        ("/home/ann/fast/llmgw", "xfs"),
        ("/homely", "ext4"),
        ("/my data", "nfs"),
    ],
)
def test_the_innermost_mount_decides(path: str, kind: str) -> None:
    assert files.filesystem_kind(Path(path), MOUNTS) == kind


def test_without_a_table_of_mounts_the_kind_is_unknown() -> None:
    assert files.filesystem_kind(Path("/var"), "") is None


def test_a_filesystem_shared_between_machines_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(files, "MOUNTS", table)
    with pytest.raises(StoreUnavailable, match=r"nfs4.*local disk"):
        files.make_private_file(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


def test_a_file_that_exists_keeps_its_contents(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("kept")
    files.make_private_file(tmp_path / "store.db")
    assert (tmp_path / "store.db").read_text() == "kept"
