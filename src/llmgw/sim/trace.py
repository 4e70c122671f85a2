"""Keeps what happened in a simulated run: a hash that tells two runs apart, and the story of each thing.

Laws: an entry never holds what differs between two runs of one seed (memory addresses, real time);
the hash covers every entry, also those no longer kept.
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterable

import msgspec

KEPT = 20_000  # entries; a run of a few virtual minutes has some thousands
STORY_LINES = 80


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened, at virtual seconds, and to whom (names of nodes, replicas, processes)."""

    at: float
    kind: str
    text: str
    subjects: tuple[str, ...]

    def line(self) -> str:
        """For a person."""
        return f"{self.at:10.4f}  {self.kind:<12} {self.text}"


class Trace:
    """Everything that happened in one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hash = hashlib.sha256()
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, text: str, *subjects: str) -> None:
        """Add an entry."""
        entry = Entry(self._now(), kind, text, subjects)
        self._hash.update(f"{entry.at:.9f}\t{kind}\t{text}\n".encode())
        self._entries.append(entry)
        self.counts[kind] += 1

    def digest(self) -> str:
        """Hash of all entries so far."""
        return self._hash.hexdigest()

    def story(self, subjects: Iterable[str], limit: int = STORY_LINES) -> list[str]:
        """The last entries about any of these, oldest first; without subjects, the last of all."""
        wanted = frozenset(subjects)
        chosen = [one for one in self._entries if not wanted or wanted & set(one.subjects)]
        return [entry.line() for entry in chosen[-limit:]]
