"""Whole installations with a real llama.cpp and a tiny generated model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture(scope="module")
def shared_installation(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Installation]:
    """One running installation for tests that break nothing."""
    installation = Installation(tmp_path_factory.mktemp("up"), "--model", str(tiny_model))
    try:
        installation.start()
        yield installation
    finally:
        installation.destroy()


@pytest.fixture
def installation(tmp_path: Path, tiny_model: Path) -> Iterator[Installation]:
    """A running installation for a test that breaks something."""
    one = Installation(tmp_path, "--model", str(tiny_model))
    try:
        one.start()
        yield one
    finally:
        print(one.output.read_text() if one.output.exists() else "")
        one.destroy()
