"""Which ports are free, and which are in use."""

import socket

import pytest

from llmgw.host.netports import listening, port_free


def listener(host: str = "127.0.0.1", **options: bool) -> socket.socket:
    return socket.create_server((host, 0), **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_somebody_listens_on_is_not_free(host: str) -> None:
    with listener(host) as held:
        assert not port_free("127.0.0.1", held.getsockname()[1])


def test_a_port_that_would_be_shared_is_not_free() -> None:
    with listener(reuse_port=True) as held:
        assert not port_free("127.0.0.1", held.getsockname()[1])


def test_a_port_is_free_once_its_server_has_ended_with_clients_connected() -> None:
    with listener() as held:
        port = held.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            served, _ = held.accept()
            served.close()  # the server closes first: its end waits in the kernel
            client.recv(1)
    assert port_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_an_error_and_not_a_busy_port() -> None:
    with pytest.raises(OSError, match="assign"):
        port_free("192.0.2.1", 20000)


def test_ports_in_use_are_listed_within_the_range() -> None:
    with listener() as held, listener() as other:
        port, elsewhere = held.getsockname()[1], other.getsockname()[1]
        found = listening(range(port, port + 1))
        assert found == (port,)
        assert elsewhere not in (listening(range(port, port + 1)) or ())
    assert listening(range(port, port + 1)) == ()
