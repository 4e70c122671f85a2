"""`llmgw server` as a process: what it refuses in one line, what it leaves in its folder, how it ends."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

START_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Config:
    """A server's file, with addresses nobody else has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.ports = {name: free_port() for name in ("clients", "admin", "agents")}
        self.path = folder / "server.yaml"
        self.write()

    def write(self, extra: str = "") -> None:
        lines = [f"{name}: {{listen: '127.0.0.1:{port}'}}" for name, port in self.ports.items()]
        lines += [f"state_dir: {self.state}", f"store: sqlite:///{self.state}/llmgw.db", "models: []", extra]
        self.path.write_text("\n".join(lines))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "llmgw", "server", "-c", str(self.path)]

    def refused(self) -> str:
        """What it says when it does not start; exactly one line, and exit code 1."""
        ended = subprocess.run(self.command(), capture_output=True, text=True, timeout=START_S, check=False)
        said = [line for line in ended.stderr.splitlines() if line.startswith("llmgw: ")]
        assert (ended.returncode, len(said)) == (1, 1), ended.stderr
        assert "Traceback" not in ended.stderr
        return said[0]


class Running:
    """A server that runs."""

    def __init__(self, process: asyncio.subprocess.Process, config: Config) -> None:
        self.process = process
        self.config = config

    async def get(self, path: str, token: str | None = None) -> tuple[int, bytes]:
        """A GET on the admin listener."""
        port = self.config.ports["admin"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        auth = f"Authorization: Bearer {token}\r\n" if token else ""
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{auth}Connection: close\r\n\r\n".encode()
        )
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    async def routers(self) -> list[dict[str, object]]:
        token = (self.config.state / "admin-token").read_text().strip()
        _, body = await self.get("/api/v1/routers", token)
        found: list[dict[str, object]] = json.loads(body)
        return found


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Running]:
    with (config.folder / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *config.command(), stdout=subprocess.DEVNULL, stderr=log
        )
    server = Running(process, config)
    try:
        async with asyncio.timeout(START_S):
            while True:
                try:
                    if await server.routers():
                        break
                except (OSError, IndexError):
                    assert process.returncode is None, (config.folder / "log").read_text()
                await asyncio.sleep(0.05)
        yield server
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), START_S)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(tmp_path)


def gone(pid: object) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


async def test_it_makes_a_private_folder_and_a_token_and_ends_with_its_routers(config: Config) -> None:
    async with running(config) as server:
        assert stat.S_IMODE(config.state.stat().st_mode) == 0o700
        assert stat.S_IMODE((config.state / "admin-token").stat().st_mode) == 0o600
        token = (config.state / "admin-token").read_text()
        (router,) = await server.routers()
        assert not gone(router["pid"])
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(server.process.wait(), START_S) == 0
        assert gone(router["pid"])
    async with running(config):
        assert (config.state / "admin-token").read_text() == token, "made once"


async def test_the_admin_api_answers_only_with_the_token(config: Config) -> None:
    async with running(config) as server:
        assert (await server.get("/api/v1/status"))[0] == 401
        assert (await server.get("/api/v1/status", "wrong"))[0] == 401


async def test_a_second_server_on_the_same_file_is_refused_naming_the_first(
    config: Config, tmp_path: Path
) -> None:
    async with running(config) as server:
        (tmp_path / "second").mkdir()
        second = Config(tmp_path / "second")
        second.state = config.state
        second.write()
        assert f"pid {server.process.pid}" in await asyncio.to_thread(second.refused)
        assert (await server.get("/api/v1/status", "wrong"))[0] == 401, "the first goes on"


async def test_a_server_that_was_killed_is_followed_at_once_and_its_router_is_kept(config: Config) -> None:
    async with running(config) as server:
        (router,) = await server.routers()
        server.process.kill()
        await server.process.wait()
    async with running(config) as server:
        assert [one["pid"] for one in await server.routers()] == [router["pid"]]


async def test_routers_with_other_settings_are_replaced(config: Config) -> None:
    async with running(config) as server:
        (before,) = await server.routers()
        server.process.kill()
        await server.process.wait()
    config.write("router: {drain: 1s}")
    async with running(config) as server:
        async with asyncio.timeout(START_S):
            while not gone(before["pid"]):  # noqa: ASYNC110  processes tell nobody
                await asyncio.sleep(0.05)
            while len(await server.routers()) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        (after,) = await server.routers()
        assert after["pid"] != before["pid"]


@pytest.mark.parametrize("listener", ["clients", "admin", "agents"])
def test_an_address_that_is_taken_is_refused_by_its_name(config: Config, listener: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", config.ports[listener]))
        other.listen()
        said = config.refused()
    assert f"{listener}.listen 127.0.0.1:{config.ports[listener]}" in said
    assert "in use" in said


def test_a_folder_that_cannot_be_made_is_refused(config: Config) -> None:
    config.state = config.folder / "file" / "state"
    (config.folder / "file").write_text("")
    config.write()
    assert "state_dir" in config.refused()


def test_listening_beyond_loopback_without_tls_is_refused_with_what_to_write(config: Config) -> None:
    text = config.path.read_text().replace(
        f"127.0.0.1:{config.ports['admin']}", f"0.0.0.0:{config.ports['admin']}"
    )
    config.path.write_text(text)
    said = config.refused()
    assert "admin" in said
    assert "insecure" in said


def test_a_broken_database_is_refused_in_its_own_words(config: Config) -> None:
    config.state.mkdir(mode=0o700)
    (config.state / "llmgw.db").write_bytes(os.urandom(4096))
    assert "store" in config.refused()
