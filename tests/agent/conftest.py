"""A server to register with, a node to run an agent on, and a model."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.fake_server import FakeServer
from tests.agent.node import Node
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    made = FakeServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def node(tmp_path: Path, server: FakeServer) -> AsyncIterator[Node]:
    made = Node(tmp_path, server.address)
    yield made
    await made.kill_all()
