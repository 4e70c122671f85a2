"""What the config files share: addresses, places, errors."""

from pathlib import Path

import pytest

from llmgw.core.shape import Problem
from llmgw.entry.config_common import (
    ConfigError,
    Settings,
    is_listen,
    is_loopback,
    server_address,
    servers_of,
)
from llmgw.entry.yaml_strict import read_yaml


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a.example", "a.example:8443"),
        ("a.example:1", "a.example:1"),
        ("::1", "[::1]:8443"),
        ("[::1]", "[::1]:8443"),
        ("[::1]:2", "[::1]:2"),
        ("unix:/run/x", "unix:/run/x"),
        ("unix:x", None),
        ("a b", None),
        ("http://a", None),
        ("a:b", None),
        ("10.0.0.300:1", None),
        ("10.0.0", None),
        ("a.example:99999", None),
        ("", None),
    ],
)
def test_a_server_may_be_written_without_its_port(text: str, address: str | None) -> None:
    assert server_address(text) == address


@pytest.mark.parametrize(
    ("text", "taken"),
    [("h:1", True), ("h", False), (":1", False), ("unix:/x", False), ("1.2.3:4", False), ("a_b c:1", False)],
)
def test_a_listener_is_a_host_and_a_port(text: str, taken: bool) -> None:
    assert is_listen(text) is taken


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:1", True),
        ("127.1.2.3:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("unix:/x", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("localhost.example:1", False),
        ("10.0.0.1:1", False),
    ],
)
def test_only_this_machine_reaches_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_servers_come_in_order_without_repeats() -> None:
    found, problems = servers_of("b", ["a:1", "b:8443", "a:1"])
    assert (list(found.items()), problems) == ([("b:8443", "server"), ("a:1", "servers[0]")], ())
    assert servers_of(None, [])[1][0].path == "server"


def test_paths_start_at_the_file_and_home_is_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    settings = Settings(tmp_path / "server.yaml", read_yaml(""))
    assert settings.resolved("state") == tmp_path / "state"
    assert settings.resolved("../x") == tmp_path.parent / "x"
    assert settings.resolved("/abs") == Path("/abs")
    assert settings.resolved("~/s") == Path("/home/op/s")


def test_problems_are_printed_in_the_order_of_the_file() -> None:
    settings = Settings(Path("f.yaml"), read_yaml("a: 1\nb: 2\nc: 3"))
    error = settings.error(
        [Problem("c", "3", "bad"), Problem("a", "1", "bad"), Problem("b", "", "is required")]
    )
    assert str(error) == "f.yaml:1: a: 1: bad\nf.yaml:2: b: is required\nf.yaml:3: c: 3: bad"
    assert isinstance(error, ConfigError)
