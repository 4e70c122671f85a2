"""The settings file of a router: what is written is what is read, and nothing unknown passes."""

import pytest

from llmgw.core import defaults
from llmgw.entry.router_settings import BadRouterSettings, RouterSettings, dump, load, settings_hash


def test_what_is_dumped_is_what_is_loaded() -> None:
    settings = RouterSettings(watch="unix:/tmp/x/watch.sock", listen="127.0.0.1:0", chat=False, drain_s=3.0)
    assert load(dump(settings)) == settings


def test_equal_settings_have_the_same_hash_and_different_ones_do_not() -> None:
    one = RouterSettings(watch="unix:/tmp/x/watch.sock")
    assert settings_hash(dump(one)) == settings_hash(dump(load(dump(one))))
    other = RouterSettings(watch="unix:/tmp/x/watch.sock", max_body_mb=33)
    assert settings_hash(dump(one)) != settings_hash(dump(other))


def test_what_is_not_written_has_its_default() -> None:
    settings = load(b'{"watch": "unix:/tmp/x"}')
    assert settings.listen == defaults.CLIENT_LISTEN
    assert settings.timeouts.first_byte == defaults.FIRST_BYTE_TIMEOUT_S
    assert settings.max_body_mb == defaults.MAX_BODY_MB


@pytest.mark.parametrize("data", [b"", b"{}", b'{"watch": 1}', b'{"watch": "x", "wach": "y"}', b"\xff"])
def test_a_file_that_cannot_be_used_is_refused_with_one_line(data: bytes) -> None:
    with pytest.raises(BadRouterSettings) as refused:
        load(data)
    assert "\n" not in str(refused.value)
