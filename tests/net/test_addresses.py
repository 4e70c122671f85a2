"""Addresses are read strictly and print as they are written."""

import pytest

from llmgw.net.addresses import BadAddress, TcpAddress, UnixAddress, parse_address, tcp_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", TcpAddress("127.0.0.1", 8080)),
        ("gpu-1.lan:0", TcpAddress("gpu-1.lan", 0)),
        ("[::1]:65535", TcpAddress("::1", 65535)),
        ("unix:/run/llmgw/watch.sock", UnixAddress("/run/llmgw/watch.sock")),
    ],
)
def test_an_address_prints_as_it_was_written(text: str, address: TcpAddress | UnixAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "host", ":8080", "host:", "host:x", "host:65536", "::1:80", "[host]:80", "unix:rel", "h:-1", "h:٣"],
)
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(BadAddress, match=r"host:port|absolute"):
        parse_address(text)


def test_where_only_tcp_serves_a_unix_socket_is_refused() -> None:
    with pytest.raises(BadAddress, match="write host:port"):
        tcp_address("unix:/run/x.sock")
    assert tcp_address("[::]:8080") == TcpAddress("::", 8080)
