"""Decides what an API key looks like, how accounts are named, and which models a key may ask for.

Laws: a secret exists only in the key that is shown once, everywhere else there is its SHA-256; a secret
is compared in constant time, also when no key has that public id (K2); names hold nothing that needs
quoting in a shell, a URL or a page; deleting is marking, so that usage keeps its owner (K6).
"""

import fnmatch
import hashlib
import hmac
import random
import re
from collections.abc import Mapping
from enum import Enum
from typing import assert_never

import msgspec

KEY_PREFIX = "sk-llmgw-"
PUBLIC_ID_LENGTH = 12  # 62 bits: found by it, so it only has to be unique
SECRET_LENGTH = 43  # characters of 62: 256 bits

_SMALL = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: a public id is read aloud
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_KEY = re.compile(r"sk-llmgw-([a-z0-9]{8,32})-([A-Za-z0-9]{32,128})", re.ASCII)
_HASH_LINE = re.compile(r"([a-z0-9]{8,32}):sha256:([0-9a-f]{64})", re.ASCII)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?", re.ASCII)
_USER_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,126}[a-z0-9])?", re.ASCII)
_MODEL_PATTERN = re.compile(r"[^\s,]{1,256}")
KEY_NAME_LENGTH = 100
_NO_SECRET = "0" * 64  # the SHA-256 of nothing anybody can send


class BadName(ValueError):
    """A name, path or model pattern that cannot be used; the text says what is accepted."""


class Level(Enum):
    """The levels of the account tree (K1); an id begins with the level's value."""

    ORG = "org"
    TEAM = "team"
    PROJECT = "project"
    USER = "user"
    KEY = "key"


# ---------------------------------------------------------------- keys


class FreshKey(msgspec.Struct, frozen=True):
    """A key that was just made: the only value that ever holds the secret."""

    public_id: str
    text: str  # the whole key, as a client sends it
    secret_sha256: str

    def __repr__(self) -> str:
        """Without the secret: a value that is logged by mistake gives nothing away."""
        return f"FreshKey(public_id={self.public_id!r})"


def make_key(draw: random.Random) -> FreshKey:
    """A new key; `draw` must be the operating system's randomness wherever real clients use it."""
    public_id = "".join(draw.choices(_SMALL, k=PUBLIC_ID_LENGTH))
    secret = "".join(draw.choices(_LETTERS, k=SECRET_LENGTH))
    return FreshKey(public_id, f"{KEY_PREFIX}{public_id}-{secret}", hash_secret(secret))


def parse_key(text: str) -> tuple[str, str] | None:
    """The public id and the secret of a key as sent by a client; `None` when it is no key of ours."""
    match = _KEY.fullmatch(text)
    return (match[1], match[2]) if match else None


def hash_secret(secret: str) -> str:
    """SHA-256 of a secret in hex. The secret is random, so no slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def secret_matches(secret: str, expected_sha256: str | None) -> bool:
    """Whether a secret is the stored one, in the same time for yes, no and an unknown id (`None`)."""
    same = hmac.compare_digest(hash_secret(secret), expected_sha256 or _NO_SECRET)
    return same and expected_sha256 is not None


def hash_line(key: str) -> str | None:
    """A key as a line for the `keys:` list of a router-only file; `None` when it is no key of ours."""
    parsed = parse_key(key)
    return f"{parsed[0]}:sha256:{hash_secret(parsed[1])}" if parsed else None


def parse_hash_line(line: str) -> tuple[str, str] | None:
    """The public id and the secret's hash of such a line; `None` when it is none."""
    match = _HASH_LINE.fullmatch(line)
    return (match[1], match[2]) if match else None


def model_allowed(patterns: tuple[str, ...] | None, model: str) -> bool:
    """Whether names or globs admit a model; `None` admits every model, an empty list none."""
    return patterns is None or any(fnmatch.fnmatchcase(model, pattern) for pattern in patterns)


def make_id(level: Level, draw: random.Random) -> str:
    """A new id, such as `project-x7k2…`; never reused."""
    return f"{level.value}-{''.join(draw.choices(_SMALL, k=PUBLIC_ID_LENGTH))}"


# ---------------------------------------------------------------- names


def check_name(level: Level, name: str) -> str:
    """The name, when it is fit for its level. Raises `BadName`."""
    match level:
        case Level.KEY:
            fits = 0 < len(name) <= KEY_NAME_LENGTH and name.isprintable() and name == name.strip()
            accepted = f"1 to {KEY_NAME_LENGTH} printable characters"
        case Level.USER:
            fits = _USER_NAME.fullmatch(name) is not None
            accepted = "lower-case letters, digits and . _ - + @ inside, at most 128"
        case Level.ORG | Level.TEAM | Level.PROJECT:
            fits = _NAME.fullmatch(name) is not None
            accepted = "lower-case letters, digits and . _ - inside, at most 63"
        case _:
            assert_never(level)
    if not fits:
        raise BadName(f"{name!r} cannot be the name of a {level.value}; accepted: {accepted}")
    return name


_PATHS: Mapping[Level, tuple[str, ...]] = {
    Level.ORG: ("org",),
    Level.TEAM: ("org", "team"),
    Level.PROJECT: ("org", "team", "project"),
    Level.USER: ("org", "user"),
}


def parse_path(level: Level, path: str) -> tuple[str, ...]:
    """The names on a path such as `acme/research/bot`, one a level. Raises `BadName`."""
    if level is Level.KEY:
        raise BadName("a key is named by its id, not by a path")
    words = _PATHS[level]
    names = path.split("/")
    if len(names) != len(words):
        raise BadName(f"{path!r} is not a {level.value}; write {'/'.join(word.upper() for word in words)}")
    for word, name in zip(words, names, strict=True):
        check_name(Level(word), name)
    return tuple(names)


def parse_models(text: str) -> tuple[str, ...]:
    """Names or globs, separated by commas (`qwen*,llama-3`). Raises `BadName`."""
    patterns = tuple(part.strip() for part in text.split(","))
    for pattern in patterns:
        if _MODEL_PATTERN.fullmatch(pattern) is None:
            raise BadName(f"{text!r} is not a list of models; write names or globs, like 'qwen*,llama-3'")
    return patterns


# ---------------------------------------------------------------- the tree, as it is stored


class Group(msgspec.Struct, frozen=True):
    """An organisation, team, project or user; `path` is its place in the tree as it is now."""

    id: str
    level: Level
    path: str  # acme, acme/research, acme/research/bot; a user: acme/ann
    created_at: float
    disabled: bool = False


class ApiKey(msgspec.Struct, frozen=True):
    """An API key as people see it: never the secret."""

    id: str
    name: str
    project: str  # path
    user: str | None  # path
    public_ids: tuple[str, ...]  # more than one while a rotation overlaps
    created_at: float
    expires_at: float | None = None
    disabled: bool = False
    models: tuple[str, ...] | None = None
    last_used_at: float | None = None
