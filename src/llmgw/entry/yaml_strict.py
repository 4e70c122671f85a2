"""Decides how YAML is read: strictly, so that what is meant as text stays text (C15).

Laws: a key written twice is refused; only `true`, `false` and `null` are words with a meaning, `off`, `yes`
and `no` are text; numbers are decimal and do not begin with 0, so `012`, `0x1F`, `12:30` and `1_000` are
text; tags and merge keys are refused; every error and every value has its line.
"""

import re
from collections.abc import Mapping

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from llmgw.core.shape import join

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the C parser where PyYAML was built with it
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map"))
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]{0,17})(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?")
_WORDS: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
# Aliases may repeat a part, and repeat what repeats: bounds what a small file can grow to. A catalog of
# 5,000 models has about 200,000 values.
_MOST_VALUES = 500_000
_DEEPEST = 100


class YamlError(ValueError):
    """Text that is not the YAML we read; `line` counts from 1, 0 when it is about the whole text."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.line = line
        self.text = text


class Document(msgspec.Struct, frozen=True):
    """What was read: plain values, and the line of each by its path (`models[0].name`)."""

    data: object
    lines: Mapping[str, int]

    def line_of(self, path: str) -> int:
        """The line of a value, or of the nearest part around it that is there; 0 for none."""
        while path not in self.lines and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 0)


def read_yaml(text: str | bytes) -> Document:
    """Read one document; an empty one is `None`. Raises `YamlError`."""
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from error
    except yaml.YAMLError as error:  # not text at all
        raise YamlError(0, str(error).splitlines()[0]) from error
    except RecursionError as error:
        raise YamlError(0, "is nested too deeply") from error
    reading = _Reading()
    data = None if root is None else reading.value(root, "", 0)
    return Document(data, reading.lines)


def _syntax_error(error: yaml.MarkedYAMLError) -> YamlError:
    mark, begun = error.problem_mark, error.context_mark
    context = error.context or ""
    if context and mark and begun and begun.line != mark.line:
        context += f" that begins on line {begun.line + 1}"
    at = mark or begun
    words = ", ".join(part for part in (context, error.problem) if part)
    return YamlError(at.line + 1 if at else 0, words)


class _Reading:
    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._values = 0

    def value(self, node: Node, path: str, depth: int) -> object:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise YamlError(line, "is too large once its aliases are written out")
        if depth > _DEEPEST:
            raise YamlError(line, "is nested too deeply")
        if node.tag not in _TAGS:
            raise YamlError(
                line, f"the tag {node.tag.replace('tag:yaml.org,2002:', '!!')} is not accepted here"
            )
        match node:
            case ScalarNode():
                return _scalar(node)
            case SequenceNode():
                return [
                    self.value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)
                ]
            case MappingNode():
                return self._mapping(node, path, depth)
            case _:
                raise AssertionError(node)

    def _mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, object]:
        read: dict[str, object] = {}
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                raise YamlError(line, "a key must be text")
            key = str(key_node.value)
            if key in first:
                raise YamlError(line, f"the key {key} is written twice, first on line {first[key]}")
            if key == "<<":
                raise YamlError(line, "merge keys (<<) are not accepted; write the keys out")
            first[key] = line
            self.lines.setdefault(join(path, key), line)
            read[key] = self.value(value_node, join(path, key), depth + 1)
        return read


def _scalar(node: ScalarNode) -> object:
    text: str = node.value
    if node.style:  # quoted or a block: text whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
