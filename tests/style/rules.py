"""Judges one file at a time: each rule yields what breaks it, why that matters and what to do instead.

Laws: a rule reads nothing but the `Source` it is given; every violation names its line and its
replacement; exemptions are not made here but in `exemptions.py`, each with its reason.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.style.source import ADAPTERS, PURE, SHELLS, Source

FILE_LINES = 600  # aim at 400; beyond 600 a file holds two ideas
FUNCTION_LINES = 60  # aim at 40
PARAMETERS = 6  # then a frozen options value


class Violation(NamedTuple):
    """One thing to change: where, which rule, what is there, and what to write instead."""

    path: str
    line: int
    rule: str
    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what} [{self.rule}]. Instead: {self.instead}"


class Banned(NamedTuple):
    """A name (or everything below it, with a final dot) that only some areas may use."""

    name: str
    allowed: frozenset[str]
    instead: str
    why: str

    def covers(self, name: str) -> bool:
        """Whether a full name is this one or lies below it."""
        return name.startswith(self.name) if self.name.endswith(".") else name == self.name


_CLOCK = "take `now` as an argument; durations from the loop's time(), wall time from ports.Clock"
_CLOCK_WHY = "a decision that reads the clock cannot be replayed"
_CHANCE = "take `draw: random.Random` as an argument"
_CHANCE_WHY = "the simulator replays a seed only when every choice comes from it"
_TASKS = "use llmgw.aio.tasks, which keeps a reference and reports failures"
_TASKS_WHY = "a task nobody holds is collected while it runs and its error is lost"
_THREADS = "put the blocking work behind a port, in an adapter"
_THREADS_WHY = "a thread cannot be simulated and shares the interpreter with the streams"
_ENV = "read it in entry/ and pass the value"
_ENV_WHY = "two processes' parts must be able to live in one"
_EFFECT = "return the wish as a value; a shell performs it through a port"
_EFFECT_WHY = "decisions are pure functions over values"

ENTRY = frozenset({"entry"})
AIO = frozenset({"aio"})
OUTSIDE = ADAPTERS | ENTRY
CONSOLE = frozenset({"entry", "ctl"})
IMPURE = SHELLS | ADAPTERS | frozenset({"entry", "sim", "aio", "ports", ""})

BANNED: tuple[Banned, ...] = (
    *(
        Banned(f"time.{name}", ADAPTERS, _CLOCK, _CLOCK_WHY)
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
    ),
    Banned(
        "time.sleep", ADAPTERS, "await asyncio.sleep(), or wait for the event itself", "it stops the loop"
    ),
    *(Banned(f"time.{name}", ADAPTERS, _CLOCK, _CLOCK_WHY) for name in ("localtime", "gmtime", "strftime")),
    *(
        Banned(f"datetime.{name}", ADAPTERS, _CLOCK, _CLOCK_WHY)
        for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
    ),
    Banned("random.SystemRandom", OUTSIDE, _CHANCE, _CHANCE_WHY),
    Banned("secrets.", OUTSIDE, _CHANCE, _CHANCE_WHY),
    *(Banned(f"uuid.{name}", OUTSIDE, _CHANCE, _CHANCE_WHY) for name in ("uuid1", "uuid4")),
    Banned("os.urandom", OUTSIDE, _CHANCE, _CHANCE_WHY),
    *(
        Banned(f"os.{name}", ENTRY, _ENV, _ENV_WHY)
        for name in ("environ", "environ.", "environb", "getenv", "getenvb", "putenv", "unsetenv")
    ),
    Banned("sys.argv", ENTRY, _ENV, _ENV_WHY),
    *(
        Banned(f"asyncio.{name}", AIO, _TASKS, _TASKS_WHY)
        for name in ("create_task", "ensure_future", "TaskGroup", "run_coroutine_threadsafe")
    ),
    Banned("asyncio.get_event_loop", AIO, "asyncio.get_running_loop()", "it makes a loop where none runs"),
    Banned("asyncio.to_thread", ADAPTERS, _THREADS, _THREADS_WHY),
    Banned("threading.", ADAPTERS, _THREADS, _THREADS_WHY),
    Banned("concurrent.futures.", ADAPTERS, _THREADS, _THREADS_WHY),
    Banned(
        "multiprocessing.", frozenset(), "ports.Processes", "children are started and found by one adapter"
    ),
    Banned("subprocess.", OUTSIDE, "ports.Processes", "children are started and found by one adapter"),
    Banned("socket.socket", ADAPTERS, "dial and listen through ports", "the simulator swaps the network"),
    Banned("socket.create_connection", ADAPTERS, "dial through ports", "the simulator swaps the network"),
    Banned("pathlib.Path", IMPURE, f"pathlib.PurePath for names; else {_EFFECT}", _EFFECT_WHY),
    Banned("io.open", IMPURE, _EFFECT, _EFFECT_WHY),
)

BANNED_BUILTINS: tuple[Banned, ...] = (
    Banned("print", CONSOLE, "return text to entry/ or ctl/, or log it", "output has one place and one form"),
    Banned("input", CONSOLE, "ask in entry/ or ctl/", "only a terminal answers"),
    Banned("open", OUTSIDE | frozenset({"ctl", "sim"}), _EFFECT, "files are read in entry/ or behind a port"),
    Banned("eval", frozenset(), "parse the text", "it runs what it is given"),
    Banned("exec", frozenset(), "call a function", "it runs what it is given"),
    Banned("breakpoint", frozenset(), "remove it", "it waits for a terminal"),
)

BANNED_METHODS: tuple[Banned, ...] = (
    Banned("create_task", AIO, _TASKS, _TASKS_WHY),
    Banned("run_in_executor", ADAPTERS, _THREADS, _THREADS_WHY),
)


def long_files(source: Source) -> Iterator[Violation]:
    """A file is at most 600 lines."""
    lines = source.text.count("\n")
    if lines > FILE_LINES:
        what = f"{lines} lines, at most {FILE_LINES}"
        yield Violation(
            source.path, FILE_LINES, "file length", what, "split it where its docstring says `and`"
        )


def long_functions(source: Source) -> Iterator[Violation]:
    """A function is at most 60 lines."""
    for function in source.functions:
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES:
            what = f"{function.name} has {lines} lines, at most {FUNCTION_LINES}"
            yield Violation(
                source.path, function.lineno, "function length", what, "name its steps as functions"
            )


def many_parameters(source: Source) -> Iterator[Violation]:
    """A shipped function takes at most six parameters, `self` not counted."""
    for function in source.functions if source.shipped else ():
        args = function.args
        names = [
            arg.arg
            for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
            if arg
        ]
        if names and names[0] in {"self", "cls"}:
            names.pop(0)
        if len(names) > PARAMETERS:
            what = f"{function.name} takes {len(names)} parameters, at most {PARAMETERS}"
            yield Violation(source.path, function.lineno, "parameters", what, "pass a frozen options value")


def no_docstring(source: Source) -> Iterator[Violation]:
    """Every file says what it is for."""
    if not ast.get_docstring(source.tree):
        instead = "begin with what the file decides or does, then its laws"
        yield Violation(source.path, 1, "docstring", "no module docstring", instead)


def banned_names(source: Source) -> Iterator[Violation]:
    """Clock, chance, environment, tasks, threads, processes, files: each has its place."""
    if not source.shipped:
        return
    for line, name in source.references:
        for ban in BANNED:
            if ban.covers(name) and source.area not in ban.allowed:
                yield Violation(source.path, line, "banned", f"{name}: {ban.why}", ban.instead)
                break


def module_chance(source: Source) -> Iterator[Violation]:
    """`random` is used for the type `Random` and for seeded instances of it, nothing else."""
    if not source.shipped:
        return
    for line, name in source.references:
        if name.startswith("random.") and name not in {"random.Random", "random.SystemRandom"}:
            yield Violation(source.path, line, "banned", f"{name}: {_CHANCE_WHY}", _CHANCE)
    for node in source.nodes:
        if not isinstance(node, ast.Call) or source.dotted(node.func) != "random.Random":
            continue
        if not node.args and not node.keywords and source.area not in OUTSIDE:
            yield Violation(source.path, node.lineno, "banned", "a Random without a seed", _CHANCE)


def banned_builtins(source: Source) -> Iterator[Violation]:
    """Built-in functions that only some areas may call."""
    if not source.shipped:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for ban in BANNED_BUILTINS:
                if ban.name == node.func.id and source.area not in ban.allowed:
                    what = f"{ban.name}(): {ban.why}"
                    yield Violation(source.path, node.lineno, "banned", what, ban.instead)


def banned_methods(source: Source) -> Iterator[Violation]:
    """Methods that start tasks or threads, whatever they are called on."""
    if not source.shipped:
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and source.dotted(node) is None:
            for ban in BANNED_METHODS:
                if ban.name == node.attr and source.area not in ban.allowed:
                    what = f".{ban.name}: {ban.why}"
                    yield Violation(source.path, node.lineno, "banned", what, ban.instead)


def broad_except(source: Source) -> Iterator[Violation]:
    """Only aio/tasks.py catches everything."""
    if not source.shipped or source.path.endswith("/aio/tasks.py"):
        return
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {kind.id if isinstance(kind, ast.Name) else "" for kind in kinds if kind is not None}
        if node.type is None or names & {"Exception", "BaseException"}:
            instead = "catch the errors the port names; leave the rest to aio/tasks.py"
            yield Violation(source.path, node.lineno, "broad except", "catches everything", instead)


def global_statement(source: Source) -> Iterator[Violation]:
    """No function rebinds a module's name."""
    for node in source.nodes:
        if isinstance(node, ast.Global):
            what = f"global {', '.join(node.names)}"
            yield Violation(source.path, node.lineno, "ambient state", what, "give it an owner and pass it")


_CONTAINERS = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
_READ_ONLY = re.compile(r"\b(Final|Mapping|Sequence|Collection|Iterable|Set)\b")
_MAKERS = frozenset({"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter", "bytearray"})


def _is_mutable(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return name in _MAKERS
    return isinstance(value, _CONTAINERS)


def _is_field_default(statement: ast.stmt) -> bool:
    """An empty container as the default of an annotated field: msgspec copies it for each value."""
    return isinstance(statement, ast.AnnAssign) and (
        (isinstance(statement.value, ast.List | ast.Set) and not statement.value.elts)
        or (isinstance(statement.value, ast.Dict) and not statement.value.keys)
    )


def _module_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from _module_statements(statement.body)
        elif isinstance(statement, ast.ClassDef):
            yield from (s for s in _module_statements(statement.body) if not _is_field_default(s))
        else:
            yield statement


def mutable_module_state(source: Source) -> Iterator[Violation]:
    """A list, dict or set at module or class level is declared Final (a table) or made immutable."""
    if not source.shipped:
        return
    for statement in _module_statements(source.tree.body):
        final = False
        if isinstance(statement, ast.AnnAssign):
            note = ast.unparse(statement.annotation)
            final = _READ_ONLY.search(note) is not None
            names = [ast.unparse(statement.target)]
        elif isinstance(statement, ast.Assign):
            names = [ast.unparse(target) for target in statement.targets]
        else:
            continue
        if not final and _is_mutable(statement.value) and names not in (["__all__"], ["__slots__"]):
            what = f"{names[0]} is a mutable container at module level"
            instead = "a tuple or frozenset, or `NAME: Final = {…}` / `NAME: Mapping[…] = {…}` for a table"
            yield Violation(source.path, statement.lineno, "ambient state", what, instead)


_MUTATORS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "setdefault",
        "pop",
        "popitem",
        "remove",
        "discard",
        "clear",
    }
)


def mutated_tables(source: Source) -> Iterator[Violation]:
    """A table at module level is read, never written."""
    if not source.shipped:
        return
    tables = {
        target.id
        for statement in _module_statements(source.tree.body)
        if isinstance(statement, ast.AnnAssign | ast.Assign) and _is_mutable(statement.value)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    for node in source.nodes:
        name = ""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _MUTATORS
        ):
            name = getattr(node.func.value, "id", "")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            name = getattr(node.value, "id", "")
        if name in tables and name.isupper():
            what = f"{name} is written after it was made"
            instead = "give what changes an owner and pass it"
            yield Violation(source.path, getattr(node, "lineno", 1), "ambient state", what, instead)


def async_in_pure(source: Source) -> Iterator[Violation]:
    """What decides does not wait."""
    if source.shipped and source.area in PURE:
        for node in source.nodes:
            if isinstance(node, ast.AsyncFunctionDef):
                yield Violation(source.path, node.lineno, "pure", f"async def {node.name}", _EFFECT)


def imports_in_pure(source: Source) -> Iterator[Violation]:
    """What decides imports no I/O that hides in a package the contracts cannot split."""
    if not (source.shipped and source.area in PURE):
        return
    for node in source.nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            if name in {"urllib.request", "xml.sax", "email.utils"}:
                yield Violation(source.path, getattr(node, "lineno", 1), "pure", f"imports {name}", _EFFECT)


MACHINES = ("src/llmgw/core/replica.py", "src/llmgw/core/supervisor.py")


def phase_changes(source: Source) -> Iterator[Violation]:
    """A phase changes only where its table lies."""
    if not source.shipped or source.path in MACHINES:
        return
    instead = f"call the step of its machine ({' or '.join(MACHINES)})"
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "phase" and isinstance(node.ctx, ast.Store):
            yield Violation(source.path, node.lineno, "phase", f"assigns {ast.unparse(node)}", instead)
        elif isinstance(node, ast.Call) and any(keyword.arg == "phase" for keyword in node.keywords):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in {"replace", "with_phase", "evolve"}:
                yield Violation(source.path, node.lineno, "phase", f"{name}(phase=…)", instead)


_LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")


def left_for_later(source: Source) -> Iterator[Violation]:
    """What is not done is written where work is planned, not in the code."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        found = _LATER.search(line)
        if found:
            instead = "do it, or say in a comment what holds today and why"
            yield Violation(source.path, number, "left for later", found.group(), instead)


def sleeping_tests(source: Source) -> Iterator[Violation]:
    """Tests wait for what they expect, not for time to pass."""
    if source.area == "tests" and not source.path.startswith("tests/e2e/"):
        for line, name in source.references:
            if name == "time.sleep":
                yield Violation(source.path, line, "sleep", name, "wait for the event, or a virtual clock")


Rule = Callable[[Source], Iterator[Violation]]

RULES: tuple[Rule, ...] = (
    long_files,
    long_functions,
    many_parameters,
    no_docstring,
    banned_names,
    module_chance,
    banned_builtins,
    banned_methods,
    broad_except,
    global_statement,
    mutable_module_state,
    mutated_tables,
    async_in_pure,
    imports_in_pure,
    phase_changes,
    left_for_later,
    sleeping_tests,
)


def judge(source: Source) -> list[Violation]:
    """Everything every rule has to say about one file."""
    return [violation for rule in RULES for violation in rule(source)]
