"""Decides what a test does about a tool this machine lacks (it is skipped, and in CI it fails), and counts.

Laws: nothing is skipped silently where CI is set; `make test` prints the command that brings the tool; the
end of a run says how many tests the store passed on each database.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.support import postgres as support
from tests.support.postgres import PostgresCluster

STORE = "store"  # the user property of a test that names the database it ran on


def tool(*names: str) -> str:
    """Path of the first of these programs that is installed; skips the test (fails it in CI) without any."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    missing(names[0])


def missing(package: str) -> NoReturn:
    """Skip the test (fail it in CI): this machine lacks what a package brings."""
    said = f"needs {package}; run: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(said, pytrace=False)
    pytest.skip(said)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium or Chrome for tests of pages."""
    return tool("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    """A running PostgreSQL for the whole run; tests take databases of their own from it and break nothing."""
    yield from running_cluster()


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres: PostgresCluster) -> Iterator[str]:
    """The address of a store with nothing in it, for one test."""
    ran_on(request, "postgresql")
    name = postgres.database()
    yield postgres.url(name)
    postgres.drop(name)


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresCluster]:
    """A running PostgreSQL for one test, which may break it."""
    ran_on(request, "postgresql")
    yield from running_cluster()


def running_cluster() -> Iterator[PostgresCluster]:
    """A PostgreSQL server until the caller is done."""
    programs = support.programs()
    if programs is None:
        missing("postgresql")
    cluster = PostgresCluster(programs)
    try:
        cluster.make()
        yield cluster
    finally:
        cluster.destroy()


def ran_on(request: pytest.FixtureRequest, database: str) -> None:
    """Count the test that asks as one of the store on this database."""
    request.node.user_properties.append((STORE, database))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests the store passed on each database."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, database in getattr(report, "user_properties", ()):
                if name == STORE:
                    counts.setdefault(str(database), Counter())[outcome] += 1
    for database, outcomes in sorted(counts.items()):
        said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        terminalreporter.write_line(f"store on {database}: {said}")
