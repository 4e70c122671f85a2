"""Gives control tests a site: a store and a folder that outlive the servers a test runs on them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control.harness import Site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = await Site(tmp_path).open()
    yield made
    made.engine.dispose()
