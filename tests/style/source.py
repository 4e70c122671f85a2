"""Reads the code under judgement: one parsed `Source` a file, and the names its imports stand for.

Laws: a file is read and parsed once; a source made from text behaves like one read from disk, so that
every rule can be shown to bite.
"""

import ast
import subprocess
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "src/llmgw/"

PURE = frozenset({"core", "engines", "wire"})
ADAPTERS = frozenset({"store", "net", "host"})
SHELLS = frozenset({"gateway", "control", "agent", "web", "ctl", "loadtest", "simengine"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """One Python file: its path from the repository's root, its text, its tree."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text, filename=path)

    @property
    def area(self) -> str:
        """Its place in the import law (`core`, `entry`, …), "" for llmgw, else its first folder."""
        if not self.path.startswith(PACKAGE):
            return self.path.split("/", 1)[0]
        first, _, rest = self.path.removeprefix(PACKAGE).partition("/")
        return first if rest else ""

    @property
    def shipped(self) -> bool:
        """Whether the file is part of the package."""
        return self.path.startswith(PACKAGE)

    @property
    def module(self) -> str:
        """Dotted name of a file of the package."""
        name = self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def functions(self) -> tuple[FunctionNode, ...]:
        """Every function and method."""
        return tuple(node for node in self.nodes if isinstance(node, FunctionNode))

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What imported names stand for: `from time import time as t` gives `t: time.time`."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for name in node.names:
                    top = name.name.split(".", 1)[0]
                    found[name.asname or top] = name.name if name.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for name in node.names:
                    found[name.asname or name.name] = f"{node.module}.{name.name}"
        return found

    def dotted(self, node: ast.AST) -> str | None:
        """The full name a chain of attributes stands for, or `None` when it does not begin at an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.aliases:
            return None
        return ".".join([self.aliases[node.id], *reversed(parts)])

    @cached_property
    def references(self) -> tuple[tuple[int, str], ...]:
        """Line and full name of every use of something imported."""
        inner = {id(node.value) for node in self.nodes if isinstance(node, ast.Attribute)}
        found: list[tuple[int, str]] = []
        for node in self.nodes:
            if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
                name = self.dotted(node)
                if name is not None:
                    found.append((node.lineno, name))
        return tuple(found)


@lru_cache(maxsize=1)
def all_sources() -> tuple[Source, ...]:
    """Every Python file of the package, its tests and its measurements."""
    return tuple(_read(("src", "tests", "bench", "scripts")))


def _read(folders: tuple[str, ...]) -> Iterator[Source]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield Source(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def published_texts() -> tuple[tuple[str, str], ...]:
    """Path and text of every file that belongs to the project; binary files are left out."""
    texts: list[tuple[str, str]] = []
    for path in _published_paths():
        file = ROOT / path
        if not file.is_file():
            continue
        data = file.read_bytes()
        if b"\0" not in data[:8192]:
            texts.append((path, data.decode("utf-8", errors="replace")))
    return tuple(texts)


def _published_paths() -> list[str]:
    """What git would publish; without git, every file that is not hidden (and `.ci`)."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True, text=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        files = (file.relative_to(ROOT) for file in ROOT.rglob("*") if file.is_file())
        return [f.as_posix() for f in files if not f.parts[0].startswith(".") or f.parts[0] == ".ci"]
    return sorted(set(listed.stdout.split("\0")) - {""})
