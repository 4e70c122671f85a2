"""Changing one value in a file people edit: the rest stays as it was written."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw.entry.yaml_edit import CannotEdit, append_item, items, scalar, set_value, value_at

FILE = """\
# my own words
clients:   # who asks
  listen: 0.0.0.0:8080   # everybody
  max_body_mb: 64
admin: {listen: "127.0.0.1:8081"}
models:
  # the small one
  - name: a
    source: /models/a.gguf  # copied by hand
    scaling: {min: 1}

  - name: b
# the end
aliases: {}
"""


def test_a_value_is_replaced_and_nothing_else() -> None:
    changed = set_value(FILE, ("clients", "listen"), "0.0.0.0:9000")
    assert changed == FILE.replace("0.0.0.0:8080", '"0.0.0.0:9000"')


def test_a_value_in_braces_is_replaced_too() -> None:
    changed = set_value(FILE, ("admin", "listen"), "127.0.0.1:9001")
    assert changed == FILE.replace("127.0.0.1:8081", "127.0.0.1:9001")


def test_a_value_of_a_list_item_is_replaced() -> None:
    changed = set_value(FILE, ("models", 0, "source"), "/models/new one.gguf")
    assert changed == FILE.replace("/models/a.gguf", '"/models/new one.gguf"')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'clients:\n  listen: "x:1"\n'),
        ("# only words", '# only words\nclients:\n  listen: "x:1"\n'),
        ("store: s\n", 'store: s\nclients:\n  listen: "x:1"\n'),
        ("clients:\nstore: s\n", 'clients:\n  listen: "x:1"\nstore: s\n'),
        ("clients: {}\nstore: s\n", 'clients:\n  listen: "x:1"\nstore: s\n'),
        ("clients:\n    max_body_mb: 4\n", 'clients:\n    listen: "x:1"\n    max_body_mb: 4\n'),
    ],
)
def test_a_key_that_is_absent_is_added(before: str, after: str) -> None:
    assert set_value(before, ("clients", "listen"), "x:1") == after


@pytest.mark.parametrize(
    "text",
    [
        "clients: {max_body_mb: 4}\n",
        "- a\n",
        "clients: [1]\n",
        "clients: 'x\n",
        "clients: &a {}\nb: *a\n---\n",
    ],
)
def test_what_cannot_be_changed_is_said(text: str) -> None:
    with pytest.raises(CannotEdit):
        set_value(text, ("clients", "listen"), "x:1")


def test_an_item_goes_behind_the_last_with_its_indentation() -> None:
    changed = append_item(FILE, "models", "- name: c\n  source: /c\n")
    assert changed == FILE.replace("  - name: b\n", "  - name: b\n  - name: c\n    source: /c\n")
    flush = "models:\n- name: a\n  source: /a\naliases: {}\n"
    assert append_item(flush, "models", "- name: c\n") == flush.replace(
        "  source: /a\n", "  source: /a\n- name: c\n"
    )


def test_an_item_goes_behind_a_block_of_text() -> None:
    text = "models:\n  - name: a\n    description: |\n      two\n      lines\naliases: {}\n"
    changed = append_item(text, "models", "- name: c\n")
    assert changed == text.replace("      lines\n", "      lines\n  - name: c\n")


@pytest.mark.parametrize("before", ["", "models: []\n", "models:\n", "store: x\n", "models: []\nstore: x\n"])
def test_an_item_in_an_empty_list_makes_it(before: str) -> None:
    changed = append_item(before, "models", "- name: c\n")
    assert items(changed, "models") == [{"name": "c"}]
    assert ("store: x" in changed) == ("store: x" in before)


def test_a_list_in_brackets_is_left_to_its_writer() -> None:
    with pytest.raises(CannotEdit, match="dashes"):
        append_item("models: [{name: a}]\n", "models", "- name: c\n")


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_text_is_written_so_that_it_reads_back(text: str) -> None:
    read = yaml.safe_load(f"key: {scalar(text)}\n")["key"]
    assert read == text


def test_what_is_there_is_read() -> None:
    assert value_at(FILE, ("models", 1, "name")) == "b"
    assert value_at(FILE, ("models", 2, "name")) is None
    assert value_at(FILE, ("nothing", "there")) is None
