"""Decides whether data read from YAML or JSON has the shape of a type, and says everything that is wrong.

Laws: every problem is reported with its path and value, not only the first; an unknown key never binds
to nothing, one of a later version is named as such; nothing is coerced, a number is not text; a key
with nothing after it counts as not written where it may be left out.
"""

import difflib
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import inspect

from llmgw.core.units import BadUnit, parse_duration

T = TypeVar("T")

_SHOWN = 60  # characters of a value in a message: enough to find it, short enough for one line
_INDEX = re.compile(r"\[\d+\]")
_SECRET = re.compile(r"(^|\.)env\.")


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong in something people wrote: where, what is there, and what is accepted."""

    path: str  # like models[2].profiles[0].engine
    value: str  # as written, in YAML flow style; empty when nothing is there
    text: str

    def line(self) -> str:
        """`models[0].scaling.max: 1: must be at least min, 2`."""
        return ": ".join(part for part in (self.path, self.value, self.text) if part)


class Wrong(msgspec.Struct, frozen=True):
    """What `Shape.read` gives back instead of the value."""

    problems: tuple[Problem, ...]


def accepts(text: str, check: Callable[[Any], bool]) -> msgspec.Meta:
    """A constraint for `Annotated`: a value must pass `check`; `text` says what is accepted."""
    return msgspec.Meta(extra={"accepts": text, "check": check})


def is_duration(text: str) -> bool:
    """Whether `parse_duration` reads it."""
    try:
        parse_duration(text)
    except BadUnit:
        return False
    return True


DURATION = "a duration such as 30s, 15m or 2h"
Duration = Annotated[str, accepts(DURATION, is_duration)]  # text in files; seconds once resolved


def join(path: str, key: str) -> str:
    """The path of `key` under `path`; the empty path is the whole document."""
    return f"{path}.{key}" if path else key


def shown(path: str, value: object) -> str:
    """A value as a message shows it: one line, bounded, and nothing of an environment (S4)."""
    if _SECRET.search(path):
        return "(not shown)"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Shape(Generic[T]):
    """How a type is read; made once for each type, because looking into one costs a millisecond.

    `later` names keys of later versions as paths within the type with `[]` for any index, like
    `profiles[].container`.
    """

    def __init__(self, kind: type[T], later: frozenset[str] = frozenset()) -> None:
        self._kind = kind
        self._type = inspect.type_info(kind)
        self._later = later

    def read(self, data: object, path: str = "") -> T | Wrong:
        """`data` as the type, or everything wrong with it; `path` is where it stands in its document."""
        walk = _Walk(path, self._later)
        clean = walk.value(data, self._type, path)
        if walk.problems:
            return Wrong(tuple(walk.problems))
        try:
            return msgspec.convert(clean, self._kind)
        except msgspec.ValidationError as refused:  # a constraint this walk does not know
            return Wrong((Problem(path, shown(path, data), str(refused)),))


class _Walk:
    """One reading: collects problems and leaves out keys that count as not written."""

    def __init__(self, root: str, later: frozenset[str]) -> None:
        self._root = root
        self._later = later
        self.problems: list[Problem] = []

    def _problem(self, path: str, value: object, text: str) -> None:
        self.problems.append(Problem(path, shown(path, value), text))

    def value(self, data: object, kind: inspect.Type, path: str) -> object:
        chosen = _member(data, kind)
        if chosen is None:
            self._problem(path, data, f"expected {_expected(kind)}{_hint(data, kind)}")
            return data
        match chosen:
            case inspect.Metadata():
                return self._constrained(data, chosen, path)
            case inspect.StructType():
                assert isinstance(data, Mapping)
                return self._struct(data, chosen, path)
            case inspect.DictType():
                assert isinstance(data, Mapping)
                return {
                    key: self.value(item, chosen.value_type, join(path, str(key)))
                    for key, item in data.items()
                }
            case inspect.ListType() | inspect.VarTupleType():
                assert isinstance(data, Sequence)
                return [
                    self.value(item, chosen.item_type, f"{path}[{index}]") for index, item in enumerate(data)
                ]
            case inspect.IntType() | inspect.FloatType():
                self._bounds(data, chosen, path)
                return data
            case _:
                return data

    def _constrained(self, data: object, kind: inspect.Metadata, path: str) -> object:
        before = len(self.problems)
        clean = self.value(data, kind.type, path)
        extra = kind.extra or {}
        if len(self.problems) == before and "check" in extra and not extra["check"](clean):
            self._problem(path, data, f"expected {extra['accepts']}")
        return clean

    def _struct(self, data: Mapping[Any, Any], kind: inspect.StructType, path: str) -> object:
        fields = {field.encode_name: field for field in kind.fields}
        for key in data:
            self._known(str(key), data[key], fields, path)
        clean: dict[str, object] = {}
        for name, field in fields.items():
            written = data.get(name)
            if name in data and (written is not None or _takes_null(field.type) or field.required):
                clean[name] = self.value(written, field.type, join(path, name))
            elif field.required:
                self.problems.append(Problem(join(path, name), "", "is required"))
        return clean

    def _known(self, key: str, value: object, fields: Mapping[str, inspect.Field], path: str) -> None:
        full = join(path, key)
        if value is not None and self._is_later(full):
            self._problem(full, value, "not available in this version; remove it")
        elif key not in fields:
            accepted = [name for name in fields if not self._is_later(join(path, name))]
            near = difflib.get_close_matches(key, accepted, 1, 0.6)
            guess = f"did you mean {near[0]}?" if near else f"accepted here: {', '.join(accepted)}"
            self._problem(full, value, f"no such key; {guess}")

    def _is_later(self, full: str) -> bool:
        relative = full[len(self._root) :].lstrip(".") if self._root else full
        return _INDEX.sub("[]", relative) in self._later

    def _bounds(self, data: object, kind: inspect.IntType | inspect.FloatType, path: str) -> None:
        assert isinstance(data, int | float)
        for limit, holds, words in (
            (kind.ge, operator.ge, "at least"),
            (kind.gt, operator.gt, "more than"),
            (kind.le, operator.le, "at most"),
            (kind.lt, operator.lt, "less than"),
        ):
            if limit is not None and not holds(data, limit):
                self._problem(path, data, f"must be {words} {limit:g}")


def _bare(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    bare = _bare(kind)
    return bare.types if isinstance(bare, inspect.UnionType) else (kind,)


def _takes_null(kind: inspect.Type) -> bool:
    return any(isinstance(_bare(member), inspect.NoneType | inspect.AnyType) for member in _members(kind))


def _member(data: object, kind: inspect.Type) -> inspect.Type | None:
    """The member of a union `data` is meant as, told by its kind alone; `None` when none is."""
    for member in _members(kind):
        if _fits(data, _bare(member)):
            return member
    return None


def _fits(data: object, kind: inspect.Type) -> bool:
    match kind:
        case inspect.StructType() | inspect.DictType():
            return isinstance(data, Mapping)
        case inspect.ListType() | inspect.VarTupleType():
            return isinstance(data, Sequence) and not isinstance(data, str | bytes)
        case inspect.StrType():
            return isinstance(data, str)
        case inspect.BoolType():
            return isinstance(data, bool)
        case inspect.IntType():
            return isinstance(data, int) and not isinstance(data, bool)
        case inspect.FloatType():
            return isinstance(data, int | float) and not isinstance(data, bool)
        case inspect.NoneType():
            return data is None
        case inspect.LiteralType():
            return data in kind.values
        case inspect.AnyType():
            return True
        case _:
            raise TypeError(f"Shape does not know {kind!r}: add it here")


def _expected(kind: inspect.Type) -> str:
    words = []
    for member in _members(kind):
        if isinstance(member, inspect.Metadata) and member.extra and "accepts" in member.extra:
            words.append(str(member.extra["accepts"]))
        else:
            words.append(_word(_bare(member)))
    return " or ".join(dict.fromkeys(word for word in words if word)) or "nothing"


def _word(kind: inspect.Type) -> str:
    match kind:
        case inspect.StructType() | inspect.DictType():
            return "a mapping"
        case inspect.ListType() | inspect.VarTupleType():
            return "a list"
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a number"
        case inspect.LiteralType():
            return " or ".join(str(value) for value in kind.values)
        case _:
            return ""  # null: leaving the key out says the same


def _hint(data: object, kind: inspect.Type) -> str:
    """What to do about the commonest slip: a number or a truth where text is meant."""
    text_taken = any(isinstance(member, inspect.StrType) for member in _members(kind))
    return "; quote it" if text_taken and isinstance(data, bool | int | float) else ""
