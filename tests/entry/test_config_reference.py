"""The reference page lists exactly the keys the files take, with the defaults the program uses."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from llmgw.core import defaults
from llmgw.core.catalog import ModelDefinition
from llmgw.core.definition import MODEL_LATER
from llmgw.core.units import write_duration
from llmgw.engines import ENGINE_TRAITS
from llmgw.entry.config_agent import AGENT_LATER, AgentWritten, load_agent_config
from llmgw.entry.config_router import ROUTER_LATER, RouterWritten, load_router_config
from llmgw.entry.config_server import SERVER_LATER, ServerWritten, load_server_config

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([^`]+)` \| (?:`([^`]*)`|(none|required)) \| \S", re.MULTILINE)

FILES = [
    ("server.yaml", ServerWritten, SERVER_LATER),
    ("model", ModelDefinition, MODEL_LATER),
    ("agent.yaml", AgentWritten, AGENT_LATER),
    ("router.yaml", RouterWritten, ROUTER_LATER),
]
# What the types alone do not say: required by the loader, or filled in where a model is resolved.
FILLED_IN = {
    "server.yaml": {"store": "required"},
    "model": {
        "scaling.idle_timeout": write_duration(defaults.IDLE_TIMEOUT_S),
        "profiles[].startup_timeout": write_duration(defaults.STARTUP_TIMEOUT_S),
    },
}


def documented(section: str) -> dict[str, str]:
    text = (ROOT / "docs" / "reference" / "config.md").read_text()
    part = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    rows = ROW.findall(part)
    assert len(rows) == part.count("\n| `"), "a row that cannot be read"
    assert len({row[0] for row in rows}) == len(rows), "a key listed twice"
    return {key: default or word for key, default, word in rows}


def accepted(kind: type, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every key with its default as the page writes it; a mapping of fixed keys is listed by those keys."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        path = prefix + field.encode_name
        below = list(parts(field.type, path))
        yield from below
        if not any(key.startswith(f"{path}.") and ".*" not in key for key, _ in below):
            yield path, default_of(field)


def parts(kind: inspect.Type, path: str) -> Iterator[tuple[str, str]]:
    match kind:
        case inspect.Metadata():
            yield from parts(kind.type, path)
        case inspect.UnionType():
            for member in kind.types:
                yield from parts(member, path)
        case inspect.StructType() if kind.cls is not ModelDefinition:
            yield from accepted(kind.cls, f"{path}.")
        case inspect.VarTupleType():
            yield from parts(kind.item_type, f"{path}[]")
        case inspect.DictType():
            yield from parts(kind.value_type, f"{path}.*")
        case _:
            pass


def default_of(field: inspect.Field) -> str:
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    match default:
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case tuple():
            return f"[{', '.join(default)}]"
        case _:
            return str(default)


@pytest.mark.parametrize(("section", "kind", "later"), FILES)
def test_the_page_lists_every_key_and_its_default(section: str, kind: type, later: frozenset[str]) -> None:
    expected = {
        key: default
        for key, default in accepted(kind)
        if not any(key == name or key.startswith(f"{name}.") for name in later)
    }
    assert documented(section) == expected | FILLED_IN.get(section, {})


def test_the_examples_load() -> None:
    server = load_server_config(ROOT / "examples" / "server.yaml", ENGINE_TRAITS)
    assert list(server.catalog.models) == ["smollm2-135m", "practice"]
    assert load_agent_config(ROOT / "examples" / "agent.yaml").servers == ("127.0.0.1:8443",)
    assert load_router_config(ROOT / "examples" / "router.yaml").clients.listen == "0.0.0.0:8090"


def test_every_example_is_one_of_those_loaded() -> None:
    assert {path.name for path in (ROOT / "examples").iterdir()} == {
        "server.yaml",
        "agent.yaml",
        "router.yaml",
    }
