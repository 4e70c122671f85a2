"""Looks at files before an engine starts."""

import os
from pathlib import Path

import pytest

from llmgw.core.weights import FileFacts, FileKind
from llmgw.host import checks
from llmgw.host.checks import HostChecks
from llmgw.host.offloop import OffLoop


async def test_a_path_is_told_for_what_it_is(tmp_path: Path) -> None:
    looker = HostChecks(OffLoop())
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(200))
    os.mkfifo(tmp_path / "pipe")
    found = await looker.file(str(tmp_path / "m.gguf"))
    assert found == FileFacts(FileKind.FILE, 204, b"GGUF" + bytes(checks.HEAD - 4))
    assert (await looker.file(str(tmp_path))).kind is FileKind.FOLDER
    assert (await looker.file(str(tmp_path / "x"))).kind is FileKind.MISSING
    assert (await looker.file(str(tmp_path / "m.gguf" / "x"))).kind is FileKind.MISSING
    assert (await looker.file(str(tmp_path / "pipe"))).kind is FileKind.UNREADABLE


async def test_a_secret_is_read_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert await HostChecks(OffLoop()).secret(str(tmp_path / "token")) == "abc"


async def test_a_disk_that_does_not_answer_is_said_to_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOOK_WITHIN_S", 0.05)
    os.mkfifo(tmp_path / "token")  # opening it waits for a writer
    looker = HostChecks(OffLoop(slots=2))
    try:
        for _ in range(3):
            with pytest.raises(OSError, match="did not answer"):
                await looker.secret(str(tmp_path / "token"))
        assert (await looker.file("/etc/hostname")).kind is FileKind.FILE, "other disks are looked at"
        assert (await looker.file(str(tmp_path / "token"))).kind is FileKind.SILENT
    finally:
        (tmp_path / "token").open("w").close()
