"""router.yaml: whom to follow and where to listen."""

from pathlib import Path

import pytest

from llmgw.entry.config_common import ConfigError
from llmgw.entry.config_router import ROUTER_LATER, RouterConfig, load_router_config


def load(folder: Path, text: str) -> RouterConfig:
    path = folder / "router.yaml"
    path.write_text(text)
    return load_router_config(path)


def errors(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [line.removeprefix(f"{folder / 'router.yaml'}:") for line in caught.value.lines]


def test_a_router_follows_servers_and_listens_for_clients(tmp_path: Path) -> None:
    config = load(
        tmp_path, "server: unix:/run/watch.sock\nservers: [localhost]\nclients: {listen: '127.0.0.1:1'}"
    )
    assert config.servers == ("unix:/run/watch.sock", "localhost:8443")
    assert (config.clients.listen, config.clients.max_body_mb) == ("127.0.0.1:1", 32)


def test_a_router_needs_somebody_to_follow_on_this_machine(tmp_path: Path) -> None:
    assert errors(tmp_path, "clients: {}")[0].startswith("1: server: is required")
    assert errors(tmp_path, "server: 10.0.0.1") == [
        '1: server: "10.0.0.1:8443": beyond loopback this needs TLS, which is not available in this version; '
        "dial 127.0.0.1"
    ]


@pytest.mark.parametrize("key", sorted(ROUTER_LATER))
def test_a_key_of_a_later_version_binds_to_nothing(tmp_path: Path, key: str) -> None:
    outer, _, inner = key.partition(".")
    text = f"server: localhost\n{outer}: {f'{{{inner}: x}}' if inner else 'x'}"
    assert errors(tmp_path, text) == [f'2: {key}: "x": not available in this version; remove it']
