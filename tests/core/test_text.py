"""Foreign text on a terminal: words stay, commands do not."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.text import printable


@pytest.mark.parametrize(
    ("given_text", "printed"),
    [
        ("qwen3-8b", "qwen3-8b"),
        ("Müller's 模型 🙂", "Müller's 模型 🙂"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;Z2l0", ""),
        ("\x1bcname", "name"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("bell\x07", "bell\\x07"),
        ("lone \x1b", "lone \\x1b"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c\u200bd", "a\\u202eb\\u2066c\\u200bd"),
    ],
)
def test_commands_to_the_terminal_become_words_or_nothing(given_text: str, printed: str) -> None:
    assert printable(given_text) == printed


@given(st.text())
def test_no_control_or_direction_mark_survives(text: str) -> None:
    for character in printable(text).replace("\t", ""):
        assert unicodedata.category(character) not in {"Cc", "Zl", "Zp"}
        assert unicodedata.bidirectional(character) not in {"LRE", "RLE", "LRO", "RLO", "LRI", "RLI", "FSI"}


@given(st.text())
def test_printing_twice_changes_nothing_more(text: str) -> None:
    assert printable(printable(text)) == printable(text)
