"""Decides what a test does about a tool this machine lacks: it is skipped, and in CI it fails.

Law: nothing is skipped silently where CI is set; `make test` prints the command that brings the tool.
"""

import os
import shutil

import pytest


def tool(*names: str) -> str:
    """Path of the first of these programs that is installed; skips the test (fails it in CI) without any."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    missing = f"needs {names[0]}; run: apt-get install {names[0]}"
    if os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium or Chrome for tests of pages."""
    return tool("chromium", "chromium-browser", "google-chrome")
