"""Shows that each rule for one file bites: a snippet that breaks it, and one beside it that does not.

Laws: every rule in RULES appears here (a test compares); a snippet stands where the rule looks at it.
"""

import pytest

from tests.style.rules import FILE_LINES, FUNCTION_LINES, RULES, judge
from tests.style.source import Source

CORE = "src/llmgw/core/some.py"
CONTROL = "src/llmgw/control/some.py"
ENTRY = "src/llmgw/entry/some.py"
HOST = "src/llmgw/host/some.py"
AIO = "src/llmgw/aio/some.py"
TASKS = "src/llmgw/aio/tasks.py"
MACHINE = "src/llmgw/core/replica.py"
TEST = "tests/core/test_some.py"
E2E = "tests/e2e/test_some.py"

DOC = '"""Decides."""\n'


def said(path: str, text: str) -> str:
    """What the rules say about a file, as one text."""
    return "\n".join(str(violation) for violation in judge(Source(path, DOC + text)))


def long_function(lines: int) -> str:
    return "def f() -> None:\n" + "    f()\n" * (lines - 1)


BREAKS: tuple[tuple[str, str, str, str], ...] = (
    # rule, path, code that breaks it, a part of what is said
    ("long_files", CORE, "X = 1\n" * FILE_LINES, "601 lines, at most 600"),
    ("long_functions", TEST, long_function(FUNCTION_LINES + 1), "f has 61 lines, at most 60"),
    ("many_parameters", CORE, "def f(a, b, c, d, e, *f, g): ...", "f takes 7 parameters, at most 6"),
    ("banned_names", CORE, "import time\nnow = time.time", "time.time: a decision that reads the clock"),
    ("banned_names", CONTROL, "from time import monotonic as m\nm()", "time.monotonic"),
    ("banned_names", CONTROL, "import time\ntime.sleep(1)", "await asyncio.sleep()"),
    ("banned_names", CONTROL, "from datetime import datetime\ndatetime.now()", "datetime.datetime.now"),
    ("banned_names", CONTROL, "import datetime as d\nd.date.today()", "datetime.date.today"),
    ("banned_names", CONTROL, "from uuid import uuid4\nuuid4()", "uuid.uuid4"),
    ("banned_names", CONTROL, "import secrets\nsecrets.token_hex()", "secrets.token_hex"),
    ("banned_names", CONTROL, "import os\nos.environ['A']", "read it in entry/"),
    ("banned_names", HOST, "from os import getenv\ngetenv('A')", "os.getenv"),
    ("banned_names", CONTROL, "import sys\nsys.argv", "sys.argv"),
    ("banned_names", CONTROL, "import asyncio\nasyncio.create_task(f())", "llmgw.aio.tasks"),
    ("banned_names", HOST, "import asyncio\nasyncio.ensure_future(f())", "llmgw.aio.tasks"),
    ("banned_names", CONTROL, "import asyncio\nasyncio.get_event_loop()", "get_running_loop"),
    ("banned_names", CONTROL, "import threading\nthreading.Lock()", "threading.Lock"),
    ("banned_names", CONTROL, "import asyncio\nasyncio.to_thread(f)", "asyncio.to_thread"),
    ("banned_names", CONTROL, "import subprocess\nsubprocess.run([])", "ports.Processes"),
    ("banned_names", CONTROL, "import socket\nsocket.socket()", "through ports"),
    ("banned_names", CORE, "from pathlib import Path\nPath('a')", "pathlib.PurePath"),
    ("module_chance", CORE, "import random\nrandom.random()", "take `draw"),
    ("module_chance", HOST, "from random import choice\nchoice([1])", "take `draw"),
    ("module_chance", CORE, "import random\ndraw = random.Random()", "a Random without a seed"),
    ("banned_builtins", CONTROL, "print('x')", "print(): output has one place"),
    ("banned_builtins", CORE, "open('x')", "open(): files are read in entry/"),
    ("banned_builtins", ENTRY, "eval('x')", "eval()"),
    ("banned_methods", CONTROL, "loop.create_task(f())", ".create_task: a task nobody holds"),
    ("banned_methods", CONTROL, "loop.run_in_executor(None, f)", ".run_in_executor"),
    ("broad_except", CONTROL, "try:\n    f()\nexcept Exception:\n    pass", "catches everything"),
    ("broad_except", AIO, "try:\n    f()\nexcept (OSError, BaseException):\n    pass", "catches everything"),
    ("broad_except", ENTRY, "try:\n    f()\nexcept:\n    pass", "catches everything"),
    ("global_statement", TEST, "def f():\n    global seen\n    seen = 1", "global seen"),
    ("mutable_module_state", CONTROL, "seen = []", "seen is a mutable container"),
    ("mutable_module_state", CONTROL, "seen: dict[str, int] = dict()", "seen is a mutable container"),
    ("mutable_module_state", CONTROL, "if True:\n    SEEN = {n for n in ()}", "SEEN is a mutable container"),
    ("mutable_module_state", CONTROL, "class A:\n    seen = []", "seen is a mutable container"),
    ("mutated_tables", CONTROL, "T: Final = {1: 2}\ndef f():\n    T[3] = 4", "T is written after"),
    ("mutated_tables", CONTROL, "T: Final = [1]\ndef f():\n    T.append(4)", "T is written after"),
    ("async_in_pure", CORE, "async def f(): ...", "async def f"),
    ("imports_in_pure", CORE, "import urllib.request", "imports urllib.request"),
    ("imports_in_pure", CORE, "from urllib.request import urlopen", "imports urllib.request"),
    ("phase_changes", CONTROL, "replica.phase = Phase.READY", "assigns replica.phase"),
    ("phase_changes", CONTROL, "import msgspec\nmsgspec.structs.replace(r, phase=P)", "replace(phase=…)"),
    ("left_for_later", TEST, "# TO" + "DO: finish", "do it, or say"),
    ("sleeping_tests", TEST, "import time\ntime.sleep(1)", "wait for the event"),
)

PASSES: tuple[tuple[str, str], ...] = (
    (CORE, "X = 1\n" * (FILE_LINES - 1)),
    (CORE, long_function(FUNCTION_LINES)),
    (CORE, "class A:\n    def f(self, a, b, c, d, e, f): ..."),
    (TEST, "def f(a, b, c, d, e, f, g): ..."),
    (HOST, "import time\nnow = time.time"),
    (CORE, "def f(time: float):\n    return time.time"),
    (CORE, "import random\ndef f(draw: random.Random):\n    return draw.random()"),
    (CORE, "import random\ndraw = random.Random(7)"),
    (CORE, "from datetime import UTC, datetime\ndatetime.fromtimestamp(0, UTC)"),
    (ENTRY, "import os\nos.environ['A']"),
    (AIO, "import asyncio\nasyncio.create_task(f())"),
    (ENTRY, "print(open('x'))"),
    (TASKS, "try:\n    f()\nexcept Exception:\n    pass"),
    (CONTROL, "SEEN = ()\nKINDS = frozenset({1})\nTABLE: Final = {1: 2}\n__all__ = ['SEEN']"),
    (CONTROL, "class A(Struct):\n    labels: dict[str, str] = {}"),
    (CONTROL, "def f():\n    seen = []\n    seen.append(1)\n    return seen"),
    (CONTROL, "async def f(): ..."),
    (MACHINE, "import msgspec\nmsgspec.structs.replace(r, phase=P)"),
    (CONTROL, "Status(phase=P)\nif r.phase is P: ..."),
    (E2E, "import time\ntime.sleep(1)"),
)


@pytest.mark.parametrize(("rule", "path", "text", "part"), BREAKS)
def test_a_rule_bites_and_says_what_to_do_instead(rule: str, path: str, text: str, part: str) -> None:
    by_name = {each.__name__: each for each in RULES}
    found = [str(violation) for violation in by_name[rule](Source(path, DOC + text))]
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:")
    assert part in found[0]
    assert "Instead: " in found[0]


@pytest.mark.parametrize(("path", "text"), PASSES)
def test_code_by_the_rules_passes(path: str, text: str) -> None:
    assert said(path, text) == ""


def test_a_file_without_a_docstring_is_told_so() -> None:
    assert "no module docstring" in "\n".join(map(str, judge(Source(TEST, "X = 1\n"))))


def test_every_rule_is_shown_to_bite() -> None:
    shown = {rule for rule, *_ in BREAKS} | {"no_docstring"}
    assert {rule.__name__ for rule in RULES} == shown


def test_all_that_is_wrong_is_said_at_once() -> None:
    text = "import time\nseen = []\nprint(time.time())\n"
    assert [line.split(":")[1] for line in said(CORE, text).splitlines()] == ["4", "4", "3"]
