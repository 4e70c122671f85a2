"""Reads the golden files: bytes that were once on the wire and must stay readable.

A file is written once and then only added to; bytes that an older version wrote are the point of it.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def golden(stream: str, name: str) -> bytes:
    return (FOLDER / stream / f"{name}.json").read_bytes().strip()


def names(stream: str) -> set[str]:
    return {path.stem for path in (FOLDER / stream).glob("*.json")}
