"""What can be wrong with a model's file or its engine, all of it at once on one node, through the real door.

One story is lived through and noted: every model fails twice, then its cause is removed, then nothing is
wanted any more. The tests read the notes.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llmgw.core.defaults import BACKOFF_FIRST_S, BACKOFF_JITTER
from tests.e2e import misbehaving
from tests.e2e.cluster import NODE, Cluster
from tests.e2e.installation import until
from tests.support.tiny_gguf import write_tiny_gguf

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRIPT = Path(misbehaving.__file__)
MEGABYTE = 1_000_000
FAILURES_S = 90.0  # two failures of the slowest: a start-up timeout, the grace for TERM, a pause
RECOVERY_S = 60.0  # the pause before the third try, and the try


class Case(NamedTuple):
    """One thing that is wrong: how it comes to be, what is said of it, and how it is mended."""

    said: str
    break_: Callable[["Place"], None]
    mend: Callable[["Place"], None]
    install: str = "llama.cpp"
    startup_timeout: str = "20s"


class Place(NamedTuple):
    """Where a case's things are."""

    name: str
    folder: Path
    model: Path
    good: Path  # a model file nothing is wrong with

    def behave(self, word: str) -> None:
        """Say how the engine of this model behaves from its next start on."""
        (self.folder / "control" / self.name).write_text(word)

    @property
    def program(self) -> Path:
        """An engine of this case's own."""
        return self.folder / f"llama-server-{self.name}"


def _behaving(word: str, said: str, **more: str) -> Case:
    return Case(said, lambda p: p.behave(word), lambda p: p.behave("serve"), **more)


def _good_model(place: Place) -> None:
    shutil.copy(place.good, place.model)


def _not_a_model(place: Place) -> None:
    place.model.write_text("no weights are in here")


def _garbage(place: Place) -> None:
    place.model.write_bytes(b"GGUF" + bytes(range(256)) * 64)


def _cut(place: Place) -> None:
    data = place.good.read_bytes()
    place.model.write_bytes(data[: len(data) // 2])


CASES = {
    "missing": Case("there is nothing at", lambda p: p.model.unlink(), _good_model),
    "text": Case("is not a GGUF file", _not_a_model, _good_model),
    "garbage": Case("damaged or incomplete", _garbage, _good_model, install="llama.cpp-wheel"),
    "cut": Case("damaged or incomplete", _cut, _good_model, install="llama.cpp-wheel"),
    "uninstalled": Case(
        "not installed",
        lambda p: p.program.unlink(),
        lambda p: _install(p.folder, p.program),
        install="llama.cpp-uninstalled",
    ),
    "exit": _behaving("exit", "exited with status 0"),
    "crash": _behaving("crash", "exited with status 0"),
    "hang": _behaving("hang", "not ready within 2 s (startup_timeout)", startup_timeout="2s"),
    "port": _behaving("port", "exited with status 1"),
    "orphan": _behaving("orphan", "exited with status 1"),
}


class Note(NamedTuple):
    """What was seen of a model while it failed and after it was mended."""

    rows: list[dict[str, Any]]  # `ctl replicas --json` while it paused after its first failure
    text: str  # `ctl replicas` at that moment
    model: dict[str, Any]
    left: list[str]  # processes, ports and claims at that moment
    events: list[dict[str, Any]]  # oldest first
    served: str  # what was wrong with an answer after it was mended
    engines: int  # processes of it then


class Story(NamedTuple):
    """All notes, and what was left at the end."""

    notes: dict[str, Note]
    late: list[dict[str, Any]]  # events of the model whose engine was installed late
    late_why: str
    left: list[str]
    output: str


def _install(folder: Path, program: Path) -> None:
    code = f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "{folder / "control"}" "$@"\n'
    made = program.with_suffix(".new")
    made.write_text(code)
    made.chmod(0o755)
    made.rename(program)


def _model(place: Place, case: Case, number: int) -> dict[str, Any]:
    profile = {
        "name": "cpu",
        "engine": "llama.cpp",
        "install": case.install,
        "startup_timeout": case.startup_timeout,
        "min_memory_gb": (MEGABYTE << number) / 1e9,  # so that a sum of claims says whose they are
    }
    return {"name": place.name, "source": str(place.model), "scaling": {"min": 1}, "profiles": [profile]}


class Rig:
    """The cluster of the story."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder)
        (folder / "control").mkdir()
        good = folder / "good.gguf"
        write_tiny_gguf(good)
        self.places = {name: Place(name, folder, folder / f"{name}.gguf", good) for name in CASES}
        self.late = Place("late", folder, good, good)
        usual = folder / "bin" / "llama-server"
        usual.parent.mkdir()
        for program in (usual, self.places["uninstalled"].program):
            _install(folder, program)
        installs = {
            "llama.cpp-wheel": sys.executable,
            "llama.cpp-uninstalled": str(self.places["uninstalled"].program),
            "llama.cpp-late": str(self.late.program),
        }
        self.cluster.agent_yaml(NODE, engines=installs)
        self.cluster.configure()
        self.cluster.start_server()
        self.cluster.start_agent(env={"PATH": f"{usual.parent}{os.pathsep}{os.environ['PATH']}"})

    def models(self) -> list[dict[str, Any]]:
        """Every model of the story."""
        cases = [*CASES.items(), ("late", Case("", _good_model, _good_model, install="llama.cpp-late"))]
        places = self.places | {"late": self.late}
        return [_model(places[name], case, number) for number, (name, case) in enumerate(cases)]

    def restart_server(self, *models: dict[str, Any]) -> None:
        """A server with other models; nothing of the pauses between tries is left."""
        self.cluster.stop("server")
        self.cluster.configure(*models)
        self.cluster.start_server()
        until("the server hears its node", self.cluster.hears_node)

    def failures(self, name: str) -> list[dict[str, Any]]:
        """Events of a model's failures, oldest first."""
        return [e for e in reversed(self.cluster.events(model=name)) if e["kind"] == "replica_failed"]

    def left_of(self, name: str, number: int) -> list[str]:
        """Processes and claims of a model that are there now."""
        found = [str(one) for one in self.cluster.engines() if one.shard.startswith(f"{name}-")]
        claimed = self.cluster.node()["memory_claimed_bytes"] // MEGABYTE
        return found + ([f"a claim on {NODE}"] if claimed >> number & 1 else [])

    def everything_left(self) -> list[str]:
        """Processes, ports, claims, records and replicas of any model that are there now."""
        cluster = self.cluster
        found = [str(process) for process in cluster.processes() if process.role in ("engine", "")]
        found += [f"port {port}" for port in cluster.engine_ports_in_use()]
        found += [path.name for path in cluster.agent_state().glob("shard-*")]
        found += [f"replica {row['id']} {row['state']}" for row in cluster.replicas() or ()]
        claimed = cluster.node()["memory_claimed_bytes"]
        return found + ([f"{claimed} bytes claimed"] if claimed else [])


class Noticed(NamedTuple):
    """What is seen while a model pauses between two tries."""

    rows: list[dict[str, Any]]
    text: str
    model: dict[str, Any]
    left: list[str]


def _notice_pauses(rig: Rig) -> dict[str, Noticed]:
    """Catch every model between two tries, once."""
    seen: dict[str, Noticed] = {}
    deadline = time.monotonic() + FAILURES_S
    while len(seen) < len(CASES) and time.monotonic() < deadline:
        for number, name in enumerate(CASES):
            model = rig.cluster.model(name)
            if name not in seen and (model.get("retry_s") or 0) > 2.0:
                listed = rig.cluster.ctl("replicas", "--json")
                rows = [row for row in json.loads(listed.stdout) if row["model"] == name]
                text = rig.cluster.ctl("replicas").stdout
                if (rig.cluster.model(name).get("retry_s") or 0) > 0:  # the pause lasted all the while
                    seen[name] = Noticed(rows, text, model, rig.left_of(name, number))
    return seen


def _fail_twice(rig: Rig) -> None:
    deadline = time.monotonic() + FAILURES_S
    while time.monotonic() < deadline and any(len(rig.failures(name)) < 2 for name in CASES):
        time.sleep(0.1)


def _live(rig: Rig) -> Story:
    until("the server hears its node", rig.cluster.hears_node)
    for name, case in CASES.items():
        _good_model(rig.places[name])
        case.break_(rig.places[name])
    rig.restart_server(*rig.models())
    seen = _notice_pauses(rig)
    late_why = rig.cluster.model("late").get("reason") or ""
    _install(rig.late.folder, rig.late.program)
    _fail_twice(rig)
    for name, case in CASES.items():
        case.mend(rig.places[name])
    notes = {}
    for name in CASES:
        ready = _wait_ready(rig, name, RECOVERY_S)
        events = list(reversed(rig.cluster.events(model=name)))
        served = rig.cluster.serves(name) if ready else "it is not ready"
        engines = len(
            {process.pid for process in rig.cluster.engines() if f"--alias {name} " in process.command}
        )
        notes[name] = Note(*seen.get(name, Noticed([], "", {}, ["not seen"])), events, served, engines)
    _wait_ready(rig, "late", RECOVERY_S)
    late = list(reversed(rig.cluster.events(model="late")))
    rig.restart_server()
    deadline = time.monotonic() + 30
    while rig.everything_left() and time.monotonic() < deadline:
        time.sleep(0.1)
    output = rig.cluster.log("server") + rig.cluster.log(NODE)
    return Story(notes, late, late_why, rig.everything_left(), output)


def _wait_ready(rig: Rig, name: str, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if rig.cluster.model(name).get("ready"):
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    rig = Rig(tmp_path_factory.mktemp("failures"))
    try:
        yield _live(rig)
    finally:
        rig.cluster.destroy()


@pytest.mark.parametrize("name", CASES)
def test_the_reason_is_where_an_operator_looks(story: Story, name: str) -> None:
    note = story.notes[name]
    assert [row["state"] for row in note.rows] == ["failed"], note.rows
    assert CASES[name].said in note.rows[0]["reason"]
    assert CASES[name].said in " ".join(note.text.split())
    assert CASES[name].said in note.model["reason"] and note.model["state"] == "failed"
    failed = [event for event in note.events if event["kind"] == "replica_failed"]
    assert all(CASES[name].said in event["text"] for event in failed), failed


@pytest.mark.parametrize("name", CASES)
def test_each_try_waits_for_the_end_of_the_one_before_and_longer_than_that_did(
    story: Story, name: str
) -> None:
    one_try = ["placed", "replica_failed", "replica_gone"]
    events = [event for event in story.notes[name].events if event["kind"] in one_try]
    kinds = [event["kind"] for event in events]
    assert kinds[:7] == [*one_try, *one_try, "placed"], kinds
    for failures, (failed, placed) in enumerate(((events[1], events[3]), (events[4], events[6]))):
        least = BACKOFF_FIRST_S * 2**failures * (1 - BACKOFF_JITTER)
        assert placed["at"] - failed["at"] >= least - 0.1, (failed, placed)


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"hang"})
)  # whose end takes longer than the first pause
def test_nothing_of_it_is_left_while_it_pauses(story: Story, name: str) -> None:
    assert story.notes[name].left == []


@pytest.mark.parametrize("name", CASES)
def test_it_serves_by_itself_when_the_cause_is_gone(story: Story, name: str) -> None:
    assert story.notes[name].served == ""
    assert story.notes[name].engines == 1


def test_a_model_whose_engine_is_missing_is_not_placed_until_it_is_installed(story: Story) -> None:
    assert "llama.cpp-late" in story.late_why
    kinds = [event["kind"] for event in story.late]
    assert kinds[:1] == ["not_placed"] and kinds[-2:] == ["placed", "replica_ready"], kinds
    assert "replica_failed" not in kinds


def test_nothing_is_left_when_nothing_is_wanted(story: Story) -> None:
    assert story.left == []


def test_no_failure_is_a_surprise_to_the_programs(story: Story) -> None:
    assert "Traceback" not in story.output
