"""Sources and weight files, judged by their text and by what was seen of them."""

import pytest

from llmgw.core.reason import Failure
from llmgw.core.weights import BadSource, FileFacts, FileKind, LocalSource, Weights, judge, parse_source


@pytest.mark.parametrize("source", ["/models/a.gguf", "file:/models/a.gguf", "file:///models/a.gguf"])
def test_a_local_path_is_itself(source: str) -> None:
    assert parse_source(source) == LocalSource("/models/a.gguf")


@pytest.mark.parametrize("source", ["hf:owner/repo", "https://host/a.gguf", "mirror:a", "HF:owner/repo"])
def test_what_would_have_to_be_fetched_is_refused_by_name(source: str) -> None:
    found = parse_source(source)
    assert isinstance(found, BadSource)
    assert "not available in this version" in found.text and "copy" in found.text


@pytest.mark.parametrize("source", ["models/a.gguf", "s3://bucket/a", ""])
def test_what_is_no_source_says_what_to_write(source: str) -> None:
    found = parse_source(source)
    assert isinstance(found, BadSource)
    assert "absolute path" in found.text


def test_a_model_file_that_looks_right_is_not_refused() -> None:
    assert judge(Weights.GGUF, "/a.gguf", FileFacts(FileKind.FILE, 1000, b"GGUF\3\0\0\0")) is None


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (FileFacts(FileKind.MISSING), Failure.WEIGHTS_MISSING, "nothing at /a.gguf"),
        (FileFacts(FileKind.UNREADABLE, detail="Permission denied"), Failure.WEIGHTS_MISSING, "denied"),
        (FileFacts(FileKind.FOLDER), Failure.WEIGHTS_BAD, "is a folder"),
        (FileFacts(FileKind.FILE, 6, b"hello\n"), Failure.WEIGHTS_BAD, "b'hell'"),
        (FileFacts(FileKind.FILE, 0, b""), Failure.WEIGHTS_BAD, "empty"),
        (FileFacts(FileKind.FILE, 8, b"GGUF\3\0\0\0"), Failure.WEIGHTS_BAD, "cut short: 8 bytes"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_told_by_kind(found: FileFacts, code: Failure, words: str) -> None:
    refusal = judge(Weights.GGUF, "/a.gguf", found)
    assert refusal is not None
    assert refusal.code is code and words in refusal.text


def test_a_later_part_of_a_split_model_names_the_first() -> None:
    refusal = judge(Weights.GGUF, "/m/x-00002-of-00003.gguf", FileFacts(FileKind.FILE, 99, b"GGUF"))
    assert refusal is not None and "/m/x-00001-of-00003.gguf" in refusal.text


def test_an_engine_without_weights_looks_at_nothing() -> None:
    assert judge(Weights.NONE, "", FileFacts(FileKind.MISSING)) is None
