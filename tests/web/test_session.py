"""Session cookies and form tokens without a memory of them."""

import pytest

from llmgw.web.session import SESSION_S, Sessions

NOW = 1_800_000_000.0


def test_a_cookie_is_good_until_it_expires() -> None:
    sessions = Sessions("secret")
    cookie = sessions.cookie(NOW)
    assert sessions.is_session(cookie, NOW + SESSION_S - 1)
    assert not sessions.is_session(cookie, NOW + SESSION_S)


def test_a_cookie_survives_a_restart_but_not_another_token() -> None:
    cookie = Sessions("secret").cookie(NOW)
    assert Sessions("secret").is_session(cookie, NOW)
    assert not Sessions("other").is_session(cookie, NOW)


@pytest.mark.parametrize("forged", ["", ".", "1", "9999999999.", "9999999999.00", "x.y.z", "é.ü"])
def test_a_forged_cookie_is_none(forged: str) -> None:
    assert not Sessions("secret").is_session(forged, NOW)


def test_a_cookie_cannot_be_prolonged() -> None:
    sessions = Sessions("secret")
    expires, _, signature = sessions.cookie(NOW).partition(".")
    assert not sessions.is_session(f"{int(expires) + 1}.{signature}", NOW)


def test_a_form_token_belongs_to_one_session_and_is_no_cookie() -> None:
    sessions = Sessions("secret")
    mine, other = sessions.cookie(NOW), sessions.cookie(NOW + 60)
    assert sessions.is_form_token(sessions.form_token(mine), mine)
    assert not sessions.is_form_token(sessions.form_token(mine), other)
    assert not sessions.is_session(sessions.form_token(mine), NOW)
