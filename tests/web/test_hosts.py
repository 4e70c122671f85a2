"""Names the admin listener may be asked by."""

import pytest

from llmgw.web.hosts import Hosts, host_of


@pytest.mark.parametrize(
    "header",
    [
        "127.0.0.1:8081",
        "localhost:8081",
        "LOCALHOST",
        "localhost:9000",
        "127.0.0.1",
        "[::1]:8081",
        "a.localhost",
    ],
)
def test_loopback_names_are_always_accepted(header: str) -> None:
    assert Hosts("127.0.0.1:8081", ()).accepts(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "evil.example",
        "127.0.0.1.evil.example:8081",
        "localhost.evil.example",
        "10.0.0.5:8081",
        "localhost:8081:8081",
        "localhost:x",
        "localhost/",
        "user@localhost",
        "[::1",
        "[localhost]",
        "[::1]evil",
        "127.0.0.1,evil.example",
    ],
)
def test_any_other_name_is_refused_on_loopback(header: str | None) -> None:
    assert not Hosts("127.0.0.1:8081", ()).accepts(header)


def test_the_listen_address_and_configured_names_are_accepted() -> None:
    hosts = Hosts("10.0.0.5:8081", ("Admin.example",))
    assert hosts.accepts("10.0.0.5:8081")
    assert hosts.accepts("admin.EXAMPLE.")
    assert not hosts.accepts("10.0.0.6:8081")


@pytest.mark.parametrize("listen", ["0.0.0.0:8081", "[::]:8081"])
def test_a_listener_on_every_address_accepts_addresses_but_no_unknown_name(listen: str) -> None:
    hosts = Hosts(listen, ())
    assert hosts.accepts("10.1.2.3:8081")
    assert hosts.accepts("[fd00::1]:8081")
    assert not hosts.accepts("rebound.example:8081")


def test_the_host_of_an_address_with_brackets_has_none() -> None:
    assert host_of("[FD00::1]:80") == "fd00::1"
