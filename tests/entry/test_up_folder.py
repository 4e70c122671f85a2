"""The data folder of `llmgw up`: locked, written once, changed only where asked, secret where needed."""

import errno
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.core.catalog import Mode
from llmgw.entry.config_agent import load_agent_config
from llmgw.entry.process import CannotRun
from llmgw.entry.up_folder import Folder, Wishes, configure, held, load, prepare_store
from llmgw.entry.up_model import LocalModel

MODEL = LocalModel("tiny", Path("/models/tiny one.gguf"), 500_000_000)
DRAW = random.Random(1)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_first_run_writes_what_server_and_agent_read(folder: Folder) -> None:
    config = configure(folder, Wishes(None, None, MODEL, True), DRAW)
    assert config == load(folder)
    assert (config.clients.listen, config.admin.listen) == ("0.0.0.0:8080", "127.0.0.1:8081")
    assert (config.control.settling_s, config.router.drain_s) == (2.0, 3.0)
    assert config.state_dir == folder.path
    models = config.catalog.models
    assert {name: model.mode for name, model in models.items()} == {"tiny": Mode.ALWAYS, "sim": Mode.ALWAYS}
    assert models["tiny"].source == str(MODEL.path)
    assert models["tiny"].profiles[0].memory_bytes == 900_000_000
    agent = load_agent_config(folder.agent_yaml)
    assert agent.servers == (config.agents.listen,)
    assert config.agents.listen.startswith("127.0.0.1:")
    assert agent.state_dir == folder.agent_state


def test_a_later_run_without_options_changes_nothing(folder: Folder) -> None:
    configure(folder, Wishes(9000, 9001, MODEL), DRAW)
    before = (folder.server_yaml.read_bytes(), folder.agent_yaml.read_bytes())
    configure(folder, Wishes(), DRAW)
    assert (folder.server_yaml.read_bytes(), folder.agent_yaml.read_bytes()) == before


def test_options_of_a_later_run_are_written_back_between_what_people_wrote(folder: Folder) -> None:
    configure(folder, Wishes(None, None, MODEL), DRAW)
    text = folder.server_yaml.read_text().replace(
        "  listen: 0.0.0.0:8080", "  listen: 10.0.0.1:8080  # inside"
    )
    folder.server_yaml.write_text(text + "# my note\n")
    other = LocalModel("other", Path("/models/other.gguf"), 1)
    config = configure(folder, Wishes(9000, 9001, other, True), DRAW)
    assert (config.clients.listen, config.admin.listen) == ("10.0.0.1:9000", "127.0.0.1:9001")
    assert list(config.catalog.models) == ["tiny", "other", "sim"]
    written = folder.server_yaml.read_text()
    assert "# inside" in written
    assert "# my note" in written


def test_the_same_model_from_another_place_keeps_its_entry(folder: Folder) -> None:
    configure(folder, Wishes(None, None, MODEL), DRAW)
    folder.server_yaml.write_text(folder.server_yaml.read_text().replace("{min: 1}", "{min: 2}"))
    config = configure(folder, Wishes(None, None, LocalModel("tiny", Path("/new/tiny.gguf"), 1)), DRAW)
    model = config.catalog.models["tiny"]
    assert (model.source, model.min_replicas) == ("/new/tiny.gguf", 2)


def test_sim_is_added_once(folder: Folder) -> None:
    configure(folder, Wishes(sim=True), DRAW)
    assert list(configure(folder, Wishes(sim=True), DRAW).catalog.models) == ["sim"]


def test_an_agent_port_that_somebody_took_is_changed_in_both_files(folder: Folder) -> None:
    taken = configure(folder, Wishes(), DRAW).agents.listen
    with socket.create_server(("127.0.0.1", int(taken.rpartition(":")[2]))):
        config = configure(folder, Wishes(), DRAW)
    assert config.agents.listen != taken
    assert load_agent_config(folder.agent_yaml).servers == (config.agents.listen,)


def test_every_problem_of_an_edited_file_is_a_line(folder: Folder) -> None:
    configure(folder, Wishes(), DRAW)
    folder.server_yaml.write_text(folder.server_yaml.read_text() + "colour: red\nshape: round\n")
    with pytest.raises(CannotRun) as refused:
        configure(folder, Wishes(), DRAW)
    lines = str(refused.value).split("\nllmgw: ")
    assert [("colour" in lines[0]), ("shape" in lines[1])] == [True, True]
    assert lines[0].startswith(f"{folder.server_yaml}:")


def test_a_file_written_in_an_unusual_way_is_left_to_its_writer(folder: Folder) -> None:
    configure(folder, Wishes(), DRAW)
    text = folder.server_yaml.read_text().replace("models: []", "models: [{name: x}]")
    folder.server_yaml.write_text(text)
    with pytest.raises(CannotRun, match=r"models is not a list written with dashes; change it by hand"):
        configure(folder, Wishes(sim=True), DRAW)
    assert folder.server_yaml.read_text() == text


def test_a_path_with_unusual_characters_is_a_path(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a b?c#d%20 ü")
    folder.path.mkdir()
    configure(folder, Wishes(), DRAW)
    assert load(folder).state_dir == folder.path


# ---------------------------------------------------------------- lock


def test_one_up_a_folder(tmp_path: Path) -> None:
    with held(tmp_path / "data") as folder:
        code = (
            "import sys; from pathlib import Path; from llmgw.entry.up_folder import held\n"
            "from llmgw.entry.process import CannotRun\n"
            "try:\n    held(Path(sys.argv[1])).__enter__()\n"
            "except CannotRun as refused:\n    print(refused)"
        )
        command = [sys.executable, "-c", code, str(folder.path)]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert out == (
        f"another `llmgw up` (pid {os.getpid()}) uses {folder.path}: "
        "stop it, or give another folder with --data\n"
    )
    with held(tmp_path / "data"):
        pass


def test_the_folder_is_its_owners_alone(tmp_path: Path) -> None:
    with held(tmp_path / "data") as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CannotRun, match=r"data folder: .*/file/data: Not a directory; .*--data"),
        held(tmp_path / "file" / "data"),
    ):
        pass


def test_a_full_disk_is_one_line_and_leaves_the_old_file(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(folder, Wishes(), DRAW)
    before = folder.server_yaml.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CannotRun, match="No space left on device") as refused:
        configure(folder, Wishes(port=9000), DRAW)
    assert "\n" not in str(refused.value)
    assert folder.server_yaml.read_bytes() == before
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "agent.yaml",
        "server.yaml",
    ]


# ---------------------------------------------------------------- the first key


async def test_the_first_key_is_made_once_alone_on_a_line_for_its_owner(folder: Folder) -> None:
    store = configure(folder, Wishes(), DRAW).store
    key = await prepare_store(folder, store, DRAW)
    assert key is not None
    assert key.startswith("sk-llmgw-")
    assert folder.first_key.read_text() == f"{key}\n"
    assert folder.first_key.stat().st_mode & 0o777 == 0o600
    assert folder.database.stat().st_mode & 0o777 == 0o600
    assert await prepare_store(folder, store, DRAW) is None
    assert folder.first_key.read_text() == f"{key}\n"


async def test_a_key_that_cannot_be_kept_is_not_made(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    store = configure(folder, Wishes(), DRAW).store
    with monkeypatch.context() as patch:
        patch.setattr(
            "os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
        )
        with pytest.raises(CannotRun, match="No space left"):
            await prepare_store(folder, store, DRAW)
    assert not folder.first_key.exists()
    assert await prepare_store(folder, store, DRAW) is not None


async def test_a_database_that_is_none_is_one_line(folder: Folder) -> None:
    store = configure(folder, Wishes(), DRAW).store
    folder.database.write_bytes(b"not a database, and long enough to be looked at" * 50)
    with pytest.raises(CannotRun, match="database: ") as refused:
        await prepare_store(folder, store, DRAW)
    assert "\n" not in str(refused.value)


def test_a_disk_without_room_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.entry.up_folder.ROOM_MIN", 10**18)
    with pytest.raises(CannotRun, match=r"the disk is full: .* free, .* needed; make room"), held(tmp_path):
        raise AssertionError("it began")
