"""A Unix socket's file is private, never taken from a living owner, and cleaned up by its own."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from llmgw.net.streams import StreamDialer, WebSocketListener
from llmgw.ports import Listening, MessageStream


async def leave(stream: MessageStream) -> None:
    return None


async def listen(path: Path) -> Listening:
    return await WebSocketListener().listen(f"unix:{path}", {"/watch": leave})


async def test_the_file_is_private_and_removed_on_close(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listening = await listen(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await listening.aclose()
    assert not path.exists()


async def test_a_stale_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    left_behind = socket.socket(socket.AF_UNIX)
    left_behind.bind(str(path))
    left_behind.close()
    assert path.exists()
    listening = await listen(path)
    stream = await StreamDialer().dial(listening.address, "/watch")
    await stream.close()
    await listening.aclose()


async def test_a_living_owner_keeps_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listening = await listen(path)
    with pytest.raises(OSError, match="another process listens"):
        await listen(path)
    stream = await StreamDialer().dial(listening.address, "/watch")
    await stream.close()
    await listening.aclose()


async def test_what_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        await listen(path)
    assert path.read_text() == "precious"


async def test_the_file_of_a_successor_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listening = await listen(path)
    path.unlink()
    successor = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, str(path))
    await listening.aclose()
    assert path.exists()
    successor.close()
