"""Decides how a typed message is read from bytes that may be newer, older or broken (A11).

Laws: the type is read before anything else; reading never raises; what is not known is a value.
"""

from typing import Any, Generic, TypeVar

import msgspec

M = TypeVar("M")


class Unknown(msgspec.Struct, frozen=True):
    """A message this version does not know (`error` is None) or could not read; counted and ignored."""

    type: str
    error: str | None = None


class _Envelope(msgspec.Struct, frozen=True):
    type: str = ""


class MessageSet(Generic[M]):
    """The messages one direction of a stream may carry, told apart by their tag."""

    def __init__(self, *kinds: type[M]) -> None:
        self._by_tag: dict[str, type[M]] = {_tag(kind): kind for kind in kinds}

    def tags(self) -> frozenset[str]:
        """The tags this version knows."""
        return frozenset(self._by_tag)

    def decode(self, data: bytes) -> M | Unknown:
        """The message in `data`, or `Unknown` with what was wrong."""
        try:
            tag = msgspec.json.decode(data, type=_Envelope).type
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Unknown("", str(error))
        kind = self._by_tag.get(tag)
        if kind is None:
            return Unknown(tag)
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Unknown(tag, str(error))


def _tag(kind: type[Any]) -> str:
    tag = kind.__struct_config__.tag
    assert isinstance(tag, str), f"{kind.__name__} has no tag"
    return tag
