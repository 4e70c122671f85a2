"""agent.yaml: what is written wins, what is not is found out."""

from pathlib import Path

import pytest

from llmgw.entry.config_agent import AGENT_LATER, AgentConfig, load_agent_config
from llmgw.entry.config_common import ConfigError


def load(folder: Path, text: str) -> AgentConfig:
    path = folder / "agent.yaml"
    path.write_text(text)
    return load_agent_config(path)


def errors(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return [line.removeprefix(f"{folder / 'agent.yaml'}:") for line in caught.value.lines]


def test_the_smallest_file_names_a_server(tmp_path: Path) -> None:
    config = load(tmp_path, "server: 127.0.0.1:8443")
    assert config.servers == ("127.0.0.1:8443",)
    assert (config.id, config.address, config.gpu_class, config.gpus) == (None, None, None, True)
    assert (config.weights_dir, config.state_dir) == (
        Path("/var/lib/llmgw-weights"),
        Path("/var/lib/llmgw-agent"),
    )
    assert (config.labels, config.model_dirs, config.engines) == ({}, (), {})


def test_an_engine_given_as_a_link_is_run_as_that_link(tmp_path: Path) -> None:
    """A virtual environment's interpreter is a link to one that does not have its packages."""
    (tmp_path / "python").symlink_to("/usr/bin/env")
    config = load(tmp_path, "server: 127.0.0.1:8443\nengines: {llama.cpp-venv: ./x/../python}")
    assert config.engines == {"llama.cpp-venv": str(tmp_path / "python")}


def test_what_is_written_is_used(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        """
server: gpu.example
servers: [gpu.example, "10.0.0.2:9000", "::1", "[::2]:7"]
insecure: true
id: node-1
address: 10.0.0.5
labels: {pool: coding, zone: "12"}
gpus: off
gpu_class: H100-80GB
model_dirs: [models, /srv/models]
weights_dir: w
state_dir: s
engines: {llama.cpp: bin/llama-server}
""",
    )
    assert config.servers == ("gpu.example:8443", "10.0.0.2:9000", "[::1]:8443", "[::2]:7")
    assert (config.id, config.address, config.gpu_class, config.gpus) == (
        "node-1",
        "10.0.0.5",
        "H100-80GB",
        False,
    )
    assert config.labels == {"pool": "coding", "zone": "12"}
    assert config.model_dirs == (tmp_path / "models", Path("/srv/models"))
    assert (config.weights_dir, config.state_dir) == (tmp_path / "w", tmp_path / "s")
    assert config.engines == {"llama.cpp": str(tmp_path / "bin/llama-server")}


def test_a_file_with_only_servers_is_valid(tmp_path: Path) -> None:
    assert load(tmp_path, "servers: [localhost]").servers == ("localhost:8443",)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [" server: is required: the address of the control plane's agent listener, host:port"]),
        (
            "servers: []",
            ["1: server: is required: the address of the control plane's agent listener, host:port"],
        ),
        ("server: 'a b'", ['1: server: "a b": expected host:port (port 8443 when left out)']),
        ("server: https://x:1", ['1: server: "https://x:1": expected host:port (port 8443 when left out)']),
        (
            "servers: [localhost, 10.0.0.1]",
            [
                '1: servers[1]: "10.0.0.1:8443": beyond loopback this needs TLS, which is not available in '
                "this version; dial 127.0.0.1, or write insecure: true to go without"
            ],
        ),
        (
            "server: localhost\nid: a/b",
            ['2: id: "a/b": a node\'s id is letters, digits and . _ -, and begins with a letter or digit'],
        ),
        ("server: localhost\ngpus: 0", ["2: gpus: 0: expected auto or off"]),
        ("server: localhost\nlabels: {zone: 12}", ["2: labels.zone: 12: expected text; quote it"]),
        ("server: localhost\nmodel_dir: x", ['2: model_dir: "x": no such key; did you mean model_dirs?']),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, text: str, lines: list[str]) -> None:
    assert errors(tmp_path, text) == lines


@pytest.mark.parametrize("key", sorted(AGENT_LATER))
def test_a_key_of_a_later_version_binds_to_nothing(tmp_path: Path, key: str) -> None:
    assert errors(tmp_path, f"server: localhost\n{key}: x") == [
        f'2: {key}: "x": not available in this version; remove it'
    ]
