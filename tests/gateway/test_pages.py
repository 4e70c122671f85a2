"""The pages: packaged, without data, with an address that is only shown."""

import re

import pytest

from llmgw.gateway.pages import ASSETS, CHAT_LINK, read_files, shown_address
from llmgw.ports import RequestHead


def head(**headers: str) -> RequestHead:
    fields = tuple(
        (name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()
    )
    return RequestHead("GET", b"/", fields, "127.0.0.1", True)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"host": "gw.example:8080"}, "http://gw.example:8080"),
        ({"host": "[::1]:8080"}, "http://[::1]:8080"),
        (
            {"host": "inner", "x_forwarded_host": "ai.example.com", "x_forwarded_proto": "https"},
            "https://ai.example.com",
        ),
        (
            {"host": "inner", "x_forwarded_host": "a.example, b.example", "x_forwarded_proto": "https, http"},
            "https://a.example",
        ),
        ({}, "http://localhost"),
        ({"host": '"><script>alert(1)</script>'}, "http://localhost"),
        ({"host": "x", "x_forwarded_proto": "javascript"}, "http://x"),
    ],
)
def test_the_address_shown_is_the_one_the_client_used(headers: dict[str, str], shown: str) -> None:
    assert shown_address(head(**headers)) == shown


def test_every_asset_a_page_names_is_in_the_table_and_nothing_is_from_elsewhere() -> None:
    files = read_files()
    for page in (files.landing, files.chat.decode()):
        named = set(re.findall(r'(?:src|href)="([^"]+)"', page))
        assert named <= {*ASSETS, "/", "/chat"}
        assert "http://" not in page and "https://" not in page
        assert not re.search(r"<style|\sstyle=|\son\w+=", page), "the policy forbids it"
    assert all(files.assets.values())


def test_the_link_to_a_chat_that_is_off_can_be_taken_out() -> None:
    without = CHAT_LINK.sub("", read_files().landing)
    assert "/chat" in read_files().landing
    assert '"/chat"' not in without and "Base URL" in without
