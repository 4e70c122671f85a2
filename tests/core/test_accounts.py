"""Judges keys, names and paths of accounts by the laws of core/accounts.py."""

import hashlib
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core import accounts
from llmgw.core.accounts import BadName, Level

KEY = accounts.make_key(random.Random(1))


def test_a_fresh_key_has_the_published_form_and_at_least_192_bits_of_secret() -> None:
    parsed = accounts.parse_key(KEY.text)
    assert parsed is not None
    public_id, secret = parsed
    assert KEY.text == f"sk-llmgw-{public_id}-{secret}"
    assert KEY.public_id == public_id
    assert len(secret) * math.log2(62) >= 192


def test_a_fresh_key_holds_the_sha256_of_its_secret() -> None:
    secret = KEY.text.rpartition("-")[2]
    assert KEY.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()


def test_keys_differ_with_chance_and_repeat_with_the_seed() -> None:
    draw = random.Random(1)
    assert accounts.make_key(draw).text == KEY.text
    assert accounts.make_key(draw).text != KEY.text


def test_a_key_printed_by_mistake_does_not_show_its_secret() -> None:
    assert KEY.text.rpartition("-")[2] not in f"{KEY!r} {KEY}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-",
        "sk-llmgw-",
        KEY.text[:-12],
        f"{KEY.text}\n",
        f" {KEY.text}",
        KEY.text.replace("sk-llmgw-", "sk-proj-"),
        f"{KEY.text}-more",
        f"{KEY.text}é",
        KEY.text + "a" * 200,
        KEY.text.upper(),
    ],
)
def test_what_is_not_exactly_a_key_is_none(text: str) -> None:
    assert accounts.parse_key(text) is None
    assert accounts.hash_line(text) is None


@given(st.text())
def test_no_text_makes_the_parser_fail(text: str) -> None:
    accounts.parse_key(text)
    accounts.parse_hash_line(text)


def test_only_the_right_secret_matches_and_an_unknown_id_never_does() -> None:
    secret = KEY.text.rpartition("-")[2]
    assert accounts.secret_matches(secret, KEY.secret_sha256)
    assert not accounts.secret_matches(secret[:-1] + "#", KEY.secret_sha256)
    assert not accounts.secret_matches(secret, None)


def test_an_unknown_id_still_costs_one_constant_time_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(left: str, right: str) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr("llmgw.core.accounts.hmac.compare_digest", compare)
    accounts.secret_matches("x", None)
    assert len(compared) == 1
    assert len(compared[0][0]) == len(compared[0][1]) == 64


def test_a_hash_line_round_trips_without_the_secret() -> None:
    line = accounts.hash_line(KEY.text)
    assert line is not None
    assert accounts.parse_hash_line(line) == (KEY.public_id, KEY.secret_sha256)
    assert KEY.text.rpartition("-")[2] not in line


@pytest.mark.parametrize(
    ("patterns", "model", "allowed"),
    [
        (None, "anything", True),
        ((), "anything", False),
        (("qwen*",), "qwen3-8b", True),
        (("qwen*",), "Qwen3-8b", False),
        (("qwen*",), "my-qwen", False),
        (("llama", "qwen"), "qwen", True),
        (("llama",), "llama-3", False),
    ],
)
def test_models_are_allowed_by_name_or_glob(
    patterns: tuple[str, ...] | None, model: str, allowed: bool
) -> None:
    assert accounts.model_allowed(patterns, model) is allowed


def test_a_path_gives_one_name_a_level() -> None:
    assert accounts.parse_path(Level.ORG, "acme") == ("acme",)
    assert accounts.parse_path(Level.TEAM, "acme/research") == ("acme", "research")
    assert accounts.parse_path(Level.PROJECT, "acme/research/bot") == ("acme", "research", "bot")
    assert accounts.parse_path(Level.USER, "acme/ann@example.com") == ("acme", "ann@example.com")


@pytest.mark.parametrize(
    "path", ["", "acme", "acme/research", "a/b/c/d", "a//c", "a/b/C", "a/b/ c", "a/b/c\n"]
)
def test_a_bad_project_path_is_refused_with_what_is_accepted(path: str) -> None:
    with pytest.raises(BadName, match=r"ORG/TEAM/PROJECT|accepted"):
        accounts.parse_path(Level.PROJECT, path)


def test_a_key_has_no_path() -> None:
    with pytest.raises(BadName, match="id"):
        accounts.parse_path(Level.KEY, "acme")


@pytest.mark.parametrize("name", ["", " ci", "x" * 101, "a\nb", "\x1b[31m"])
def test_a_key_name_is_short_and_printable(name: str) -> None:
    with pytest.raises(BadName):
        accounts.check_name(Level.KEY, name)


def test_a_key_name_may_be_any_words() -> None:
    assert accounts.check_name(Level.KEY, "Nightly CI – main") == "Nightly CI – main"


def test_models_are_read_from_a_list_with_commas() -> None:
    assert accounts.parse_models("qwen*, llama-3") == ("qwen*", "llama-3")


@pytest.mark.parametrize("text", ["", "a,,b", ",", "a b"])
def test_an_empty_model_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadName, match="globs"):
        accounts.parse_models(text)


def test_ids_name_their_level() -> None:
    assert accounts.make_id(Level.PROJECT, random.Random(2)).startswith("project-")
