"""Engines' logs: bounded, read from the end, followed through a cut."""

import os
from pathlib import Path

import pytest

from llmgw.host import logs
from llmgw.host.logs import LINE_MAX, HostLogs
from llmgw.host.offloop import OffLoop


@pytest.fixture
def kept(tmp_path: Path) -> HostLogs:
    return HostLogs(tmp_path / "logs", OffLoop())


def write(kept: HostLogs, name: str, data: bytes) -> None:
    with Path(kept.path(name)).open("ab") as log:
        log.write(data)


async def test_the_last_lines_come_oldest_first(kept: HostLogs) -> None:
    write(kept, "a", b"1\n2\n3\n4")
    assert await kept.tail("a", 2) == ("3", "4")
    assert await kept.tail("a", 0) == ()
    assert await kept.tail("nothing", 5) == ()


async def test_hostile_bytes_become_lines_of_bounded_length(kept: HostLogs) -> None:
    write(kept, "a", b"\xff\xfe\n" + b"x" * 5000 + b"\n10%\r50%\r100%\n")
    broken, long, progress = await kept.tail("a", 3)
    assert broken == "\ufffd\ufffd"
    assert len(long) == LINE_MAX
    assert progress == "100%"


async def test_following_gives_whole_lines_only(kept: HostLogs) -> None:
    write(kept, "a", b"old\n")
    lines, offset = await kept.read("a", None)
    assert lines == ()
    write(kept, "a", b"one\ntw")
    lines, offset = await kept.read("a", offset)
    assert lines == ("one",)
    write(kept, "a", b"o\n")
    lines, offset = await kept.read("a", offset)
    assert lines == ("two",)
    assert (await kept.read("a", offset))[0] == ()


async def test_a_log_that_grew_too_long_is_cut_while_it_is_written(
    kept: HostLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_MAX", 1000)
    monkeypatch.setattr(logs, "KEPT", 100)
    path = Path(kept.path("a"))
    engine = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # as an engine holds it
    os.write(engine, b"".join(b"line %d\n" % number for number in range(200)))
    await kept.trim()
    assert os.fstat(engine).st_size == 0
    os.write(engine, b"line 200\n")
    assert os.fstat(engine).st_size == 9
    os.close(engine)
    assert await kept.tail("a", 3) == ("line 198", "line 199", "line 200")


async def test_a_follower_goes_on_after_a_cut(kept: HostLogs) -> None:
    write(kept, "a", b"a long line before\n")
    _, offset = await kept.read("a", None)
    os.truncate(kept.path("a"), 0)
    write(kept, "a", b"new\n")
    assert (await kept.read("a", offset))[0] == ("new",)


async def test_the_oldest_logs_of_ended_engines_are_removed(
    kept: HostLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOGS_KEPT", 2)
    for age, name in enumerate(("new", "older", "oldest")):
        write(kept, name, b"x\n")
        os.utime(kept.path(name), (1000 - age, 1000 - age))
    await kept.trim()
    assert sorted(path.stem for path in Path(kept.path("x")).parent.iterdir()) == ["new", "older"]
