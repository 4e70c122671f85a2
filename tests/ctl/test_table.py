"""Tables that line up at any width, and never carry commands to the terminal."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.ctl.table import Column, Look, Row, columns_of, render, wrap

PLACES = (
    Column("NODE"),
    Column("STATE", state=True),
    Column("MEMORY", right=True, spare=1),
    Column("ADDRESS", spare=2),
)
ROWS = (
    Row(("gpu-01", "ready", "40 GB", "10.0.0.11")),
    Row(("a-much-longer-name-02", "cordoned", "-", "-"), ("new power supply", "two cards are unhealthy")),
)


def test_columns_line_up_and_no_line_ends_in_a_space() -> None:
    assert render(PLACES, ROWS, Look()).splitlines() == [
        "NODE                   STATE     MEMORY  ADDRESS",
        "gpu-01                 ready      40 GB  10.0.0.11",
        "a-much-longer-name-02  cordoned       -  -",
        "    new power supply",
        "    two cards are unhealthy",
    ]


def test_a_narrow_terminal_loses_the_spare_columns_first_and_is_told_which() -> None:
    assert render(PLACES, ROWS, Look(width=42)).splitlines() == [
        "NODE                   STATE     MEMORY",
        "gpu-01                 ready      40 GB",
        "a-much-longer-name-02  cordoned       -",
        "    new power supply",
        "    two cards are unhealthy",
        "",
        "no room here for ADDRESS: widen the",
        "terminal, or pipe into `less -S`",
    ]


def test_an_id_is_never_cut_however_narrow() -> None:
    assert "a-much-longer-name-02" in render(PLACES, ROWS, Look(width=10))


def test_sentences_wrap_in_their_column() -> None:
    columns = (Column("WHAT"), Column("WHY", sentence=True))
    rows = (Row(("failed", "the engine ended with status 1 after 0.4 s and is tried again")),)
    assert render(columns, rows, Look(width=44)).splitlines() == [
        "WHAT    WHY",
        "failed  the engine ended with status 1 after",
        "        0.4 s and is tried again",
    ]


def test_lines_beneath_wrap_with_their_continuation_further_in() -> None:
    rows = (Row(("n", "ready", "-", "-"), ("needs 24 GB of memory, has 16 GB free of 31 GB",)),)
    assert render(PLACES, rows, Look(width=40)).splitlines()[2:] == [
        "    needs 24 GB of memory, has 16 GB",
        "      free of 31 GB",
    ]


def test_colour_is_for_states_on_a_terminal_that_takes_it() -> None:
    assert "\x1b" not in render(PLACES, ROWS, Look(width=80))
    coloured = render(PLACES, ROWS, Look(width=80, colour=True))
    assert "\x1b[32mready\x1b[0m" in coloured
    assert "\x1b[33mcordoned\x1b[0m" in coloured


def test_wide_characters_take_two_columns() -> None:
    rows = (Row(("模型", "ready", "1", "-")), Row(("abcd", "ready", "1", "-")))
    lines = render(PLACES, rows, Look()).splitlines()
    assert [columns_of(line[: line.index("ready")]) for line in lines[1:]] == [6, 6]
    assert columns_of("é") == columns_of("e\u0301") == 1


@given(
    st.lists(st.tuples(st.text(), st.text(), st.text(), st.text(), st.text()), max_size=5),
    st.integers(20, 200),
)
def test_nothing_foreign_adds_a_line_or_commands_the_terminal(
    texts: list[tuple[str, str, str, str, str]], width: int
) -> None:
    rows = [Row((a, b, c, d), (e,)) for a, b, c, d, e in texts]
    piped = render(PLACES, rows, Look())
    assert len(piped.split("\n")) == 1 + 2 * len(rows)
    for table in (piped, render(PLACES, rows, Look(width=width))):
        assert not any(ord(character) < 32 and character not in "\n\t" for character in table)


def test_text_without_a_width_stays_on_its_line() -> None:
    assert wrap("a " * 200, None, "! ") == ["! " + "a " * 200]
