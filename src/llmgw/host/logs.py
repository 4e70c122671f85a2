"""Keeps engines' output in bounded files; implements `ports.EngineLogs` (A15).

Laws: the engine owns the descriptor, so a log is shortened by copying its end aside and truncating it
(it is opened with O_APPEND and goes on at the new end); one older part is kept; lines are clipped and
undecodable bytes replaced.
"""

import contextlib
import os
from pathlib import Path

from llmgw.host.offloop import OffLoop

LOG_MAX = 8 * 1024 * 1024  # bytes a log may grow to
KEPT = 2 * 1024 * 1024  # of its end, set aside when it is cut
LOGS_KEPT = 64  # logs of engines that ended, newest first
LINE_MAX = 2000  # characters; a longer line is a dump nobody reads
READ_MAX = 256 * 1024  # bytes in one answer
WITHIN_S = 5.0

_SUFFIX = ".log"
_OLDER = ".log.1"


class HostLogs:
    """The `EngineLogs` of production. Raises `OSError` when its folder cannot be made."""

    def __init__(self, folder: Path, off_loop: OffLoop) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._off_loop = off_loop

    def path(self, name: str) -> str:
        """Where an engine's output goes."""
        assert name and "/" not in name, name
        return str(self._folder / f"{name}{_SUFFIX}")

    async def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The last lines, oldest first. Raises `TimeoutError` when the disk hangs."""
        path = Path(self.path(name))
        return await self._off_loop.run(lambda: _tail(path, lines), within=WITHIN_S, at=str(path))

    async def read(self, name: str, offset: int | None) -> tuple[tuple[str, ...], int]:
        """Whole lines after an offset, and the next offset. Raises `TimeoutError` when the disk hangs."""
        path = Path(self.path(name))
        return await self._off_loop.run(lambda: _read(path, offset), within=WITHIN_S, at=str(path))

    async def trim(self) -> None:
        """Cut what has grown too long, remove the oldest. Raises `TimeoutError` when the disk hangs."""
        await self._off_loop.run(self._trim, within=WITHIN_S, at=str(self._folder))

    def _trim(self) -> None:
        logs: list[tuple[float, Path]] = []
        for entry in self._folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                logs.append((found.st_mtime, entry))
                if found.st_size > LOG_MAX:
                    _cut(entry)
        for _, path in sorted(logs, reverse=True)[LOGS_KEPT:]:
            if not _is_open(path):
                path.unlink(missing_ok=True)
                _older(path).unlink(missing_ok=True)


def _older(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(_SUFFIX) + _OLDER)


def _cut(path: Path) -> None:
    with path.open("r+b") as log:
        log.seek(-min(KEPT, os.fstat(log.fileno()).st_size), os.SEEK_END)
        end = log.read()
        _older(path).write_bytes(end[end.find(b"\n") + 1 :])
        log.truncate(0)  # what is written between the two is lost; O_APPEND goes on at 0


def _is_open(path: Path) -> bool:
    """Whether some process of ours writes it: a quiet engine's log is not an old one."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if descriptor.readlink() == path:
                return True
    return False


def _tail(path: Path, lines: int) -> tuple[str, ...]:
    found = _last_lines(path, lines)
    if len(found) < lines:
        found = _last_lines(_older(path), lines - len(found)) + found
    return tuple(found)


def _last_lines(path: Path, lines: int) -> list[str]:
    if lines <= 0:
        return []
    try:
        with path.open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            log.seek(max(0, size - READ_MAX))
            data = log.read(READ_MAX)
    except FileNotFoundError:
        return []
    whole = _lines(data)
    return whole[-lines:] if size <= READ_MAX else whole[1:][-lines:]


def _read(path: Path, offset: int | None) -> tuple[tuple[str, ...], int]:
    try:
        with path.open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            if offset is None:
                return (), size
            start = offset if offset <= size else 0  # it was cut
            log.seek(start)
            data = log.read(READ_MAX)
    except FileNotFoundError:
        return (), 0
    end = data.rfind(b"\n") + 1
    if not end and len(data) == READ_MAX:
        end = READ_MAX  # one endless line: given in pieces
    return tuple(_lines(data[:end])), start + end


def _lines(data: bytes) -> list[str]:
    """Lines as a person would see them: of one that rewrites itself, the last state."""
    text = data.decode(errors="replace")
    return (
        [line.rstrip("\r").rpartition("\r")[2][:LINE_MAX] for line in text.removesuffix("\n").split("\n")]
        if text
        else []
    )
