"""Durations, sizes and slugs: read, written, told apart."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import BadUnit, format_bytes, format_duration, parse_duration, slug, write_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("15m", 900),
        ("2h", 7200),
        ("90d", 7776000),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("0s", 0),
    ],
)
def test_durations_are_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "-5s", "5 m", "5 min", "1h 30m", "∞", "1e3s", "5S", "5s "])
def test_anything_else_is_no_duration_and_the_error_says_what_is(text: str) -> None:
    with pytest.raises(BadUnit, match="write a number and a unit"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_a_written_duration_reads_back(seconds: int) -> None:
    assert parse_duration(write_duration(float(seconds))) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250ms"), (0, "0s"), (60, "1m"), (90, "90s"), (600, "10m"), (86400 * 400, "400d")],
)
def test_a_duration_is_written_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (4.9, "4s"), (60, "1m"), (7800, "2h10m"), (7200, "2h"), (86400 * 5, "5d")],
)
def test_a_duration_prints_short(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (135_000_000, "135 MB"),
        (24_500_000_000, "24.5 GB"),
        (2 * 10**12, "2 TB"),
    ],
)
def test_sizes_are_decimal_and_unknown_is_a_dash(count: int | None, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize("name", ["qwen3-8b", "smollm2", "a", "llama-3-70b"])
def test_a_plain_name_is_its_own_slug(name: str) -> None:
    assert slug(name) == name


NAMES = st.text("aB/.:-_0f", min_size=1, max_size=60)


@given(NAMES, NAMES)
def test_different_names_never_share_a_slug(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)


@given(st.text(min_size=1))
def test_a_slug_is_safe_in_paths_labels_and_metrics_and_stays_itself(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", slug(name))


def test_a_name_that_looks_like_a_slug_of_another_gets_its_own() -> None:
    taken = slug("Qwen/Qwen3")
    assert slug(taken) != taken
