"""Changes single values in a YAML file that people edit too: comments and order stay as they are.

Laws: only the text of the value asked for is touched; the result is read back, and a change that did not
take effect is refused, so that an unusual way of writing ends in words and not in a broken file.
"""

import json
import re
from collections.abc import Sequence

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from llmgw.entry.yaml_strict import YamlError, read_yaml


class CannotEdit(Exception):
    """The file is written in a way this cannot change; the text names the key to change by hand."""


Path = Sequence[str | int]

# What YAML does not take as it is, or takes for the end of a line.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def scalar(value: str | float) -> str:
    """A value as YAML text that reads back the same."""
    return _UNPRINTABLE.sub(
        lambda found: f"\\u{ord(found.group()):04x}", json.dumps(value, ensure_ascii=False)
    )


def set_value(text: str, path: Path, value: str) -> str:
    """The text with a scalar set: one that is there anywhere, or a new one below at most one key.

    Raises `CannotEdit`.
    """
    node = _at(_root(text), path)
    changed = _splice(text, node, value) if node is not None else _add(text, path, value)
    if value_at(changed, path) != value:
        raise CannotEdit(f"{_words(path)} could not be set")
    return changed


def append_item(text: str, key: str, item: str) -> str:
    """The text with a block item (lines without indentation, the first begins with `- `) added to a list.

    Raises `CannotEdit`.
    """
    before = items(text, key)
    node = _at(_root(text), (key,))
    if node is None or not node.value:
        changed = _fill(text, key, node, _indent(item, 2))
    elif isinstance(node, SequenceNode) and not node.flow_style:
        changed = _insert_after(text, node.value[-1], _indent(item, node.start_mark.column))
    else:
        raise CannotEdit(f"{key} is not a list written with dashes")
    if len(items(changed, key)) != len(before) + 1:
        raise CannotEdit(f"an item could not be added to {key}")
    return changed


def value_at(text: str, path: Path) -> object:
    """What the file says at a path; `None` when nothing. Raises `CannotEdit` for what is not YAML."""
    found = _data(text)
    for step in path:
        match found, step:
            case dict(), str():
                found = found.get(step)
            case list(), int():
                found = found[step] if step < len(found) else None
            case _:
                return None
    return found


def items(text: str, key: str) -> Sequence[object]:
    """The items of a list at the top; none when it is absent. Raises `CannotEdit` for what is not YAML."""
    found = value_at(text, (key,))
    return found if isinstance(found, list) else ()


# ---------------------------------------------------------------- finding


def _root(text: str) -> MappingNode:
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise CannotEdit(f"is not YAML: {str(error).splitlines()[0]}") from error
    if root is None:
        return MappingNode("tag:yaml.org,2002:map", [], flow_style=False)
    if not isinstance(root, MappingNode):
        raise CannotEdit("is not a list of keys")
    return root


def _at(node: Node | None, path: Path) -> Node | None:
    for step in path:
        match node, step:
            case MappingNode(), str():
                node = next((value for name, value in node.value if name.value == step), None)
            case SequenceNode(), int():
                node = node.value[step] if step < len(node.value) else None
            case _:
                return None
    return node


def _data(text: str) -> object:
    try:
        return read_yaml(text).data
    except YamlError as error:
        raise CannotEdit(str(error)) from error


def _words(path: Path) -> str:
    return ".".join(map(str, path))


# ---------------------------------------------------------------- changing


def _add(text: str, path: Path, value: str) -> str:
    *above, last = path
    line = f"{last}: {scalar(value)}\n"
    if not above:
        return _append(text, line)
    parent = _at(_root(text), above)
    if len(above) > 1 or not isinstance(above[0], str):
        raise CannotEdit(f"{_words(above)} has no {last}")
    if parent is None or not parent.value:
        return _fill(text, above[0], parent, f"  {line}")
    if not isinstance(parent, MappingNode) or parent.flow_style:
        raise CannotEdit(f"{above[0]} is written in braces")
    start = text.rfind("\n", 0, parent.start_mark.index) + 1
    return text[:start] + " " * parent.start_mark.column + line + text[start:]


def _splice(text: str, node: Node, value: str) -> str:
    return text[: node.start_mark.index] + scalar(value) + text[node.end_mark.index :]


def _fill(text: str, key: str, node: Node | None, block: str) -> str:
    """The block as the value of a top-level key that is absent or has an empty value."""
    if node is None:
        return _append(text, f"{key}:\n{block}")
    begin, end = node.start_mark.index, node.end_mark.index
    return text[:begin].rstrip(" ") + "\n" + block + text[end:].lstrip("\n")


def _insert_after(text: str, node: Node, block: str) -> str:
    """The block after the last line of a node. The end mark of a block lies behind comments that follow."""
    last = node
    while isinstance(last, MappingNode | SequenceNode) and last.value and not last.flow_style:
        last = last.value[-1][1] if isinstance(last, MappingNode) else last.value[-1]
    end: int = last.end_mark.index
    if text[end - 1] == "\n":  # a literal block ends behind its line
        return text[:end] + block + text[end:]
    line = text.find("\n", end)
    if line < 0:
        return _append(text, block)
    return text[: line + 1] + block + text[line + 1 :]


def _append(text: str, block: str) -> str:
    return text + ("" if not text or text.endswith("\n") else "\n") + block


def _indent(block: str, columns: int) -> str:
    return "".join(" " * columns + line + "\n" for line in block.splitlines())
