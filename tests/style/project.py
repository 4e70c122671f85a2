"""Judges the project as a whole: cycles, mirror tests, words that have no place here, contracts that forget.

Laws: the same as for one file; every violation says where, what, and what to do instead.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.style.rules import Violation
from tests.style.source import ADAPTERS, PACKAGE, SHELLS, Source

MIRRORED = ("core", "wire")  # every module there is judged by a test file of its own


def imported_modules(source: Source, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and name of every module of the package that a file imports.

    In entry/ imports inside functions do not count: a role is imported only when it runs.
    """
    lazy = {id(n) for f in source.functions for n in ast.walk(f)} if source.area == "entry" else set()
    for node in source.nodes:
        if id(node) in lazy:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in known:
                    yield node.lineno, whole
                elif node.module in known:
                    yield node.lineno, node.module


def import_cycles(sources: Iterable[Source]) -> Iterator[Violation]:
    """No module imports itself through others, also not for types only."""
    shipped = {source.module: source for source in sources if source.shipped}
    known = frozenset(shipped)
    edges = {name: {to: line for line, to in imported_modules(s, known)} for name, s in shipped.items()}
    settled: set[str] = set()
    for start in sorted(shipped):
        found = _cycle_from(start, edges, settled)
        if found:
            source, line = shipped[found[0]], edges[found[0]][found[1]]
            instead = "move what both need into a module below both"
            yield Violation(source.path, line, "cycle", f"imports {' > '.join(found)}", instead)


def _cycle_from(start: str, edges: Mapping[str, Mapping[str, int]], settled: set[str]) -> list[str] | None:
    """The first cycle met walking from a module; modules proven free of cycles are added to `settled`."""
    trail: list[str] = []
    stack: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        trail.append(name)
        stack.append((name, iter(sorted(edges[name]))))

    if start not in settled:
        enter(start)
    cycle: list[str] | None = None
    while stack:
        name, nexts = stack[-1]
        following = next(nexts, None)
        if following is None:
            settled.add(name)
            trail.pop()
            stack.pop()
        elif following in trail:
            cycle = cycle or [*trail[trail.index(following) :], following]
        elif following not in settled:
            enter(following)
    return cycle


def missing_mirrors(sources: Iterable[Source]) -> Iterator[Violation]:
    """Every module that decides, or reads a format, has a test file of its own name."""
    paths = {source.path for source in sources}
    for path in sorted(paths):
        if not path.startswith(tuple(f"{PACKAGE}{area}/" for area in MIRRORED)):
            continue
        folder, _, name = path.removeprefix(PACKAGE).rpartition("/")
        mirror = f"tests/{folder}/test_{name}"
        if name != "__init__.py" and mirror not in paths:
            yield Violation(path, 1, "mirror test", f"{mirror} is missing", "write it, by the module's laws")


def packages_without_init(sources: Iterable[Source]) -> Iterator[Violation]:
    """Every folder of Python files is a package: two test files may then share a name."""
    paths = {source.path for source in sources}
    folders = {path.rpartition("/")[0] for path in paths if path.startswith((PACKAGE, "tests/"))}
    for folder in sorted(folders):
        if f"{folder}/__init__.py" not in paths:
            path = f"{folder}/__init__.py"
            yield Violation(path, 1, "package", "is missing", "add it, with a docstring of one line")


def stray_test_files(sources: Iterable[Source]) -> Iterator[Violation]:
    """A test file is collected only when its name begins with test_."""
    for source in sources:
        name = source.path.rpartition("/")[2]
        if source.area == "tests" and not name.startswith("test_"):
            for node in source.tree.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                    what = f"{node.name} is in a file pytest does not read"
                    yield Violation(source.path, node.lineno, "test file", what, "name the file test_….py")


def _words(*pairs: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(pair.replace("~", "")) for pair in pairs), re.IGNORECASE)


# The project speaks of itself alone, and locks and scripts work wherever packages come from. The words are
# written with a tilde inside so that this file does not hold them.
UNSAID: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        _words("cla~ude", "this sess~ion", "sub-a~gent", "suba~gent", "iss~ue #", "/wo~rk/"),
        "say what holds in the project itself",
    ),
    (
        _words(*(f"sha~red/{name}" for name in ("spec", "design", "facts", "cases", "seed", "tools"))),
        "carry what is needed, in the project's own words",
    ),
    (
        _words(
            *("pypi.o~rg", "pythonhosted.o~rg", "npmjs.o~rg", "npmjs.c~om"),
            *("deb.debian.o~rg", "archive.ubuntu.c~om", "crates.i~o/api", "proxy.golang.o~rg"),
        ),
        "name the package; where packages come from is the machine's affair",
    ),
)


def unsaid_words(texts: Iterable[tuple[str, str]]) -> Iterator[Violation]:
    """Words that speak of how the project is made, or of where packages are fetched, stay out of it."""
    for path, text in texts:
        for number, line in enumerate((path, *text.splitlines())):
            for pattern, instead in UNSAID:
                found = pattern.search(line)
                if found:
                    yield Violation(path, number, "words", f"says {found.group()!r}", instead)


def forgetful_contracts(sources: Iterable[Source], pyproject: str) -> Iterator[Violation]:
    """The contract that keeps shells from adapters names every shell and every adapter there is."""
    areas = {source.area for source in sources if source.shipped}
    contracts: list[dict[str, Any]] = tomllib.loads(pyproject)["tool"]["importlinter"]["contracts"]
    named = {module for c in contracts if c["type"] == "forbidden" for module in c["source_modules"]}
    hidden = {module for c in contracts for module in c.get("forbidden_modules", ())}
    for area in sorted(areas & SHELLS):
        if f"llmgw.{area}" not in named:
            what = f"no contract keeps llmgw.{area} from the adapters"
            yield Violation(
                "pyproject.toml", 1, "contracts", what, "add it to `Shells reach adapters only …`"
            )
    for area in sorted(areas & ADAPTERS):
        if f"llmgw.{area}" not in hidden:
            what = f"no contract hides llmgw.{area} from the shells"
            yield Violation(
                "pyproject.toml", 1, "contracts", what, "add it to `Shells reach adapters only …`"
            )
