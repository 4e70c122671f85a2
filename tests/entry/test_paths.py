"""Where a role keeps what others must find."""

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.entry.paths import SOCKET_PATH_MAX, admin_token_path, watch_socket_path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder whose path is as short as a machine's own."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def test_a_socket_lies_in_the_state_directory_when_its_path_fits(tmp_path: Path) -> None:
    assert watch_socket_path(Path("/srv/llmgw")) == Path("/srv/llmgw/watch.sock")
    assert admin_token_path(Path("/srv/llmgw")) == Path("/srv/llmgw/admin-token")


def test_a_deep_state_directory_gets_a_short_private_stand_in_the_same_for_all(
    tmp_path: Path, short: Path
) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    found = watch_socket_path(deep)
    assert found.parent.parent == short
    assert len(str(found)) <= SOCKET_PATH_MAX
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    assert watch_socket_path(deep) == found
    assert watch_socket_path(deep.parent / ("f" * 60)) != found


def test_a_stand_in_that_is_a_link_is_not_trusted(tmp_path: Path, short: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    folder = watch_socket_path(deep).parent
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        watch_socket_path(deep)


def test_a_relative_state_directory_names_the_same_socket_as_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert watch_socket_path(Path("state")) == watch_socket_path(tmp_path / "state")
