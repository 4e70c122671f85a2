"""Decides how names, sizes and durations are read and printed; every border uses these.

Laws: bytes are `int`, durations are seconds as `float`, one GB is 10**9 bytes (what vendors and
`df -H` print); an unknown value is `None` and prints as `-`.
"""

import hashlib
import re
from typing import Final

GB = 10**9
KIB = 1024
MIB = 1024 * KIB

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SLUG_SAFE = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")


class BadUnit(ValueError):
    """A duration or size that cannot be read; the text says what was given and what is accepted."""


def parse_duration(text: str) -> float:
    """Seconds in a duration such as `30s`, `15m`, `1h30m`, `90d`. Raises `BadUnit`."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise BadUnit(f"{text!r} is not a duration; write a number and a unit, like 30s, 15m, 2h or 90d")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def format_duration(seconds: float | None) -> str:
    """A short reading of a duration (`4s`, `3m`, `2h10m`, `5d`); `-` when unknown."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        hours, minutes = whole // 3600, whole % 3600 // 60
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    return f"{whole // 86400}d"


def write_duration(seconds: float) -> str:
    """A duration as a config file would say it (`90s`, `10m`, `400d`); `parse_duration` reads it back."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms" if seconds else "0s"


def format_bytes(count: int | None) -> str:
    """A short reading of a size in decimal units (`135 MB`, `24.5 GB`); `-` when unknown."""
    if count is None:
        return "-"
    for unit, size in (("TB", 10**12), ("GB", GB), ("MB", 10**6), ("KB", 1000)):
        if count >= size:
            value = count / size
            return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"
    return f"{count} B"


def slug(name: str) -> str:
    """A name safe in ids, paths, labels and metrics; different names never share a slug.

    Plain lower-case names are their own slug; any other gets a hash of the whole name, and plain
    names that end like such a hash get one too, so the two kinds cannot meet (C15).
    """
    plain = _SLUG_SAFE.fullmatch(name) is not None
    if plain and re.search(r"-[0-9a-f]{8}$", name) is None:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "model"
    return f"{readable}-{digest}"
