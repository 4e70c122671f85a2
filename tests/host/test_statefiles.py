"""Small files that are whole or not there."""

from pathlib import Path

import pytest

from llmgw.host.statefiles import StateFolder, StateFolderBusy


def test_what_is_written_is_read_back_and_private(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "a" / "b")
    folder.write("term", b"7")
    folder.write("term", b"8")
    assert folder.read("term") == b"8"
    assert folder.read("other") is None
    assert Path(folder.path("term")).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_names_are_found_by_their_beginning_without_torn_ones(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    for name in ("shard-b", "shard-a", "term"):
        folder.write(name, b"x")
    (tmp_path / "shard-c.tmp").write_bytes(b"torn")
    assert folder.names("shard-") == ["shard-a", "shard-b"]
    folder.remove("shard-a")
    folder.remove("shard-a")
    assert folder.names("shard-") == ["shard-b"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = StateFolder(tmp_path)
    folder.write("term", b"7")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write("term", b"8")
    monkeypatch.undo()
    assert folder.read("term") == b"7"
    assert [path.name for path in tmp_path.iterdir()] == ["term"]


def test_one_process_uses_a_folder_at_a_time(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path), StateFolder(tmp_path)
    first.hold()
    with pytest.raises(StateFolderBusy, match=r"is used by process \d+"):
        second.hold()
    first.release()
    second.hold()
    second.release()
