"""Decides which role a command line asks for, and imports that role alone.

Laws: nothing but the standard library is imported before the verb is known, so that `llmgw ctl` starts
at once; this file and those imported before it can be read by every Python since 3.6, so that an old
one gets a sentence and not a syntax error; a reader who closes the pipe gets silence.
"""

import importlib
import os
import sys

OLDEST_PYTHON = (3, 11)
USAGE_ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell shows for a program ended by SIGPIPE

# verb, module below llmgw.entry, what it is; a verb without words is for our own children.
ROLES = (
    ("up", "up", "serve a model on this machine: server, agent and a first API key"),
    ("server", "server", "control plane, agent listener and router (-c server.yaml)"),
    ("router", "router", "one more router process (-c router.yaml)"),
    ("agent", "agent", "node agent (-c agent.yaml), or --describe this machine"),
    ("ctl", "ctl", "ask or change a running installation"),
    ("keys", "keys", "organisations, teams, projects, users, API keys"),
    ("db", "db", "database: upgrade, backup, check"),
    ("sim", "sim", "the simulated cluster"),
    ("sim-engine", "simengine", ""),
)


def usage() -> str:
    """The text of `llmgw --help`."""
    lines = ["usage: llmgw VERB ...", "", "verbs:"]
    lines += [f"  {verb:<8} {words}" for verb, _, words in ROLES if words]
    lines += ["", "options:", "  --version", "  --help", "", "`llmgw VERB --help` says more about one verb."]
    return "\n".join(lines)


def dispatch(argv: "list[str]") -> int:
    """Run the role `argv` (without the program's name) asks for; returns the exit code."""
    if sys.version_info < OLDEST_PYTHON:
        needs, has = (".".join(map(str, v)) for v in (OLDEST_PYTHON, sys.version_info[:3]))
        return _refuse(f"needs Python {needs} or newer, this is {has} ({sys.executable})", 1)
    verb = argv[0] if argv else ""
    if verb in ("--help", "-h", "help"):
        print(usage())
        return 0
    if verb in ("--version", "-V", "version"):
        from llmgw import __version__

        print(f"llmgw {__version__}")
        return 0
    for name, module, _ in ROLES:
        if name == verb:
            return _run(module, argv[1:])
    if not verb:
        return _refuse(f"which verb?\n{usage()}", USAGE_ERROR)
    return _refuse(_unknown(verb), USAGE_ERROR)


def _run(module: str, arguments: "list[str]") -> int:
    try:
        role = importlib.import_module(f"llmgw.entry.{module}")
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "llmgw":
            raise
        return _refuse(f"the Python package {missing.name!r} is not installed for {sys.executable}", 1)
    return int(role.main(arguments) or 0)


def _unknown(verb: str) -> str:
    import difflib

    known = [name for name, _, words in ROLES if words]
    near = difflib.get_close_matches(verb, known, n=2, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"unknown verb {verb!r}{meant}\n{usage()}"


def _refuse(text: str, code: int) -> int:
    print(f"llmgw: {text}", file=sys.stderr)
    return code


def main() -> None:
    """The `llmgw` command: run, flush, exit."""
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise again when the interpreter flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = PIPE_CLOSED
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
