"""Decides what a model's source is, and whether what lies at a path can be loaded by an engine (A16, A19).

Laws: a source is judged by its text alone, a file by what was seen of it; what this version cannot fetch
is refused by name, never by silence.
"""

import re
from enum import Enum
from pathlib import PurePosixPath
from typing import assert_never

import msgspec

from llmgw.core.inventory import source_path
from llmgw.core.reason import Explained, Failure

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_FETCHED = frozenset({"hf", "https", "http", "mirror"})
GGUF_MAGIC = b"GGUF"
GGUF_SMALLEST = 24  # magic, version, two counts


class Weights(Enum):
    """What an engine loads."""

    NONE = "none"
    GGUF = "gguf"


class LocalSource(msgspec.Struct, frozen=True):
    """A path on the node."""

    path: str


class BadSource(msgspec.Struct, frozen=True):
    """A source no shard can start from; the text says what to write."""

    text: str


class FileKind(Enum):
    """What a path is."""

    FILE = "file"
    FOLDER = "folder"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    SILENT = "silent"  # its disk does not answer


class FileFacts(msgspec.Struct, frozen=True):
    """What a look at one path found: the first bytes of a file, or why it could not be read."""

    kind: FileKind
    size_bytes: int = 0
    head: bytes = b""
    detail: str = ""


def parse_source(source: str) -> LocalSource | BadSource:
    """Where a shard's weights are."""
    path = source_path(source)
    if path.startswith("/"):
        return LocalSource(path)
    scheme = _SCHEME.match(path)
    if scheme is None:
        return BadSource(f"{source} is not an absolute path; write one, like /models/name.gguf")
    if scheme.group(1).lower() in _FETCHED:
        text = f"fetching {scheme.group(1)}: sources is not available in this version"
        return BadSource(f"{text}: copy the weights to the node and give their path")
    return BadSource(f"{source} is no source; write an absolute path, like /models/name.gguf")


def judge(wanted: Weights, path: str, found: FileFacts) -> Explained | None:
    """Why an engine could not load what is at a path, if so."""
    match wanted:
        case Weights.NONE:
            return None
        case Weights.GGUF:
            return _judge_gguf(path, found)
        case _:
            assert_never(wanted)


def _judge_gguf(path: str, found: FileFacts) -> Explained | None:
    match found.kind:
        case FileKind.MISSING:
            return Explained(Failure.WEIGHTS_MISSING, f"there is nothing at {path} on this node")
        case FileKind.UNREADABLE | FileKind.SILENT:
            return Explained(Failure.WEIGHTS_MISSING, f"cannot read {path}: {found.detail}")
        case FileKind.FOLDER:
            return Explained(Failure.WEIGHTS_BAD, f"{path} is a folder; name the .gguf file in it")
        case FileKind.FILE:
            pass
        case _:
            assert_never(found.kind)
    part = _PART.search(PurePosixPath(path).name)
    if part is not None and int(part.group(1)) != 1:
        first = _PART.sub(f"-00001-of-{part.group(2)}.gguf", path)
        return Explained(Failure.WEIGHTS_BAD, f"{path} is a later part of a split model; name {first}")
    if not found.head.startswith(GGUF_MAGIC):
        starts = repr(found.head[:4]) if found.head else "nothing, it is empty"
        text = f"{path} is not a GGUF file: it begins with {starts}, not {GGUF_MAGIC!r}"
        return Explained(Failure.WEIGHTS_BAD, text)
    if found.size_bytes < GGUF_SMALLEST:
        return Explained(Failure.WEIGHTS_BAD, f"{path} is cut short: {found.size_bytes} bytes")
    return None
