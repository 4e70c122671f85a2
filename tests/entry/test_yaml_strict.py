"""YAML read strictly: text stays text, nothing is written twice, everything has its line."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmgw.entry.yaml_strict import YamlError, read_yaml


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("-3", -3),
        ("+4", 4),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("0.10", 0.1),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|\n  12\n", "12\n"),
    ],
)
def test_numbers_and_the_three_words_have_their_meaning(written: str, value: object) -> None:
    read = read_yaml(f"a: {written}").data
    assert read == {"a": value}
    assert isinstance(read, dict)
    assert type(read["a"]) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("off", "on", "yes", "no", "Yes", "OFF", "y", "n"),
        *("012", "0o7", "0x1F", "1_000", "12:30", "2026-12-01", "1.2.3", "01.5", "00"),
        *("1e999", ".inf", ".nan", ".", "e3"),
    ],
)
def test_everything_else_is_text(text: str) -> None:
    assert read_yaml(f"a: {text}").data == {"a": text}


def test_a_number_too_long_for_a_machine_is_text() -> None:
    assert read_yaml(f"a: {'9' * 5000}").data == {"a": "9" * 5000}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert read_yaml("on: 1\n2: x\ntrue: y").data == {"on": 1, "2": "x", "true": "y"}


def test_every_value_has_its_line_and_a_missing_one_that_of_what_is_around_it() -> None:
    document = read_yaml("a:\n  - x: 1\n    y: 2\n  - z: 3\nb: 4\n")
    assert [document.line_of(path) for path in ("a[0].x", "a[0].y", "a[1].z", "b")] == [2, 3, 4, 5]
    assert document.line_of("a[1].missing") == 4
    assert document.line_of("a[1].missing.more[3]") == 4
    assert document.line_of("nothing") == 1


def test_an_empty_document_is_nothing() -> None:
    assert read_yaml("").data is None
    assert read_yaml("# only a comment\n").data is None
    assert read_yaml("").line_of("a") == 0


def test_anchors_repeat_what_they_name() -> None:
    assert read_yaml("a: &x {b: 1}\nc: *x").data == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3", 3, "the key a is written twice, first on line 1"),
        ("a:\n  b: 1\n  b: 1", 3, "the key b is written twice, first on line 2"),
        ("a: 1\n'a': 2", 2, "written twice"),
        ("a: !!int 3", 1, "the tag !!int is not accepted here"),
        ("a: !env X", 1, "the tag !env is not accepted here"),
        ("a: &b {c: 1}\nd:\n  <<: *b", 3, "merge keys"),
        ("? [a]\n: 1", 1, "a key must be text"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: [1\nb: 2", 2, "did not find"),
        ("a: [1\n\n\nb", 5, "flow sequence that begins on line 1"),
        ("a:\n\tb: 1", 2, "cannot start any token"),
        ("a: &x [1, *x]", 1, "nested too deeply"),
        ("a: " + "[" * 200 + "]" * 200, 1, "nested too deeply"),
        ("x: \x01", 0, "control characters"),
    ],
)
def test_what_is_not_accepted_is_named_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text)
    assert (caught.value.line, says in caught.value.text) == (line, True), str(caught.value)


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(YamlError, match="UTF-8"):
        read_yaml(b"a: \xff\n")


def test_aliases_cannot_grow_a_small_file_without_bound() -> None:
    levels = ["a0: &a0 [" + ",".join("x" * 10) + "]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(YamlError, match="too large once its aliases are written out"):
        read_yaml("\n".join(levels))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc<", min_size=1).filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_what_a_careful_writer_wrote_reads_back(data: object) -> None:
    assert read_yaml(yaml.safe_dump(data, allow_unicode=True)).data == data


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_words(text: str) -> None:
    try:
        read_yaml(text)
    except YamlError as error:
        assert error.text
