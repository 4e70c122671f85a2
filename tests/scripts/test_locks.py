"""The locks pin every release with its hashes, name no address, and agree with pyproject.toml."""

import re
import tomllib

import pytest

from tests.style.source import ROOT

LOCKS = ("run.txt", "dev.txt", "model.txt")


def pins(lock: str) -> dict[str, set[str]]:
    """Releases by name; a name may have one release a Python version."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / lock).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            name, _, rest = line.partition("==")
            found.setdefault(name, set()).add(rest.split(" ")[0])
    return found


def asked(*extras: str) -> set[str]:
    """Names pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return {re.split(r"[\[<>=~! ;]", line)[0] for line in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_release_is_pinned_with_a_hash(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    assert entries
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_an_address(lock: str) -> None:
    assert "://" not in (ROOT / "requirements" / lock).read_text(encoding="utf-8")


def test_the_locks_hold_what_the_project_asks_for() -> None:
    assert asked("llamacpp", "quickstart") | {"hatchling", "editables"} <= set(pins("run.txt"))
    assert asked("llamacpp", "quickstart", "dev") <= set(pins("dev.txt"))


def test_what_is_tested_is_what_is_run() -> None:
    run, dev = pins("run.txt"), pins("dev.txt")
    assert run == {name: dev[name] for name in run}
