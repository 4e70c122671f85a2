"""Decides what a `llmgw ctl` command line asks, asks it, and prints the answer.

Laws: exit codes are 0 done, 1 refused or failed, 2 usage, 3 cannot reach a server; `--json` prints what
the API answered and nothing else on stdout; `--json`, `--server` and `--token-file` work on both sides of
the verb.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from llmgw.core.text import printable
from llmgw.ctl import show
from llmgw.ctl.client import Client, Refused, Target, Unreachable, quoted
from llmgw.ctl.table import Look
from llmgw.wire.admin_v1 import (
    EventRow,
    Explanation,
    ModelRow,
    NodeRow,
    NodeStateChange,
    Problem,
    ProblemBody,
    ReplicaRow,
    RouterRow,
    Status,
)

V1 = "/api/v1"
DONE, FAILED, USAGE, NO_SERVER = 0, 1, 2, 3

VERBS: Final = {
    "status": "the fleet in one screen",
    "nodes": "every node: state, cards, memory, disk, engines",
    "replicas": "every replica: where it runs, progress, errors",
    "models": "every model, and why not more of it runs",
    "routers": "connected routers",
    "explain-placement": "why a model is where it is, or nowhere",
    "logs": "log lines of a replica's engine",
    "events": "decisions with their reasons",
    "cordon": "place nothing new on a node",
    "uncordon": "let a node take work again",
}

_LATER = (
    "node freeze unfreeze request plan drain model scale replace wait top weights fetch bench capacity usage "
    "engine-check cert mirror reload doctor"
)
LATER = frozenset(_LATER.split(" "))

T = TypeVar("T")


class Surroundings(msgspec.Struct, frozen=True):
    """What a command finds around it; `entry` looks.

    `servers` and `token_file` are what the environment names, `found` the servers of this machine,
    `unreadable` the tokens there that belong to somebody else.
    """

    look: Look
    servers: tuple[str, ...] = ()
    token_file: str | None = None
    found: tuple[Target, ...] = ()
    looked_in: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class UsageError(Exception):
    """A command line that cannot be carried out as written."""


def run(argv: Sequence[str], around: Surroundings) -> int:
    """Carry out one command line; prints, and returns the exit code."""
    common, rest = _common().parse_known_args(argv)
    try:
        verb = _verb(rest)
        options = _parser(verb).parse_args(rest)
        client = Client(_targets(common, around))
        HANDLERS[options.verb](Asked(client, options, common.json, around.look))
    except UsageError as error:
        print(f"llmgw ctl: {error}", file=sys.stderr)
        return USAGE
    except Refused as refused:
        return _failed(refused.problem, FAILED, as_json=common.json)
    except msgspec.DecodeError as error:
        problem = Problem("unknown_answer", f"the server speaks a version this ctl does not know: {error}")
        return _failed(problem, FAILED, as_json=common.json)
    except Unreachable as error:
        return _failed(Problem("unreachable", str(error)), NO_SERVER, as_json=common.json)
    return DONE


def _failed(problem: Problem, code: int, *, as_json: bool) -> int:
    if as_json:
        _print_json(msgspec.json.encode(ProblemBody(problem)))
    for line in problem.message.splitlines():
        print(f"llmgw ctl: {printable(line)}", file=sys.stderr)
    return code


# ---------------------------------------------------------------- the command line


def _common() -> argparse.ArgumentParser:
    """The options that may stand anywhere."""
    parser = argparse.ArgumentParser(prog="llmgw ctl", add_help=False, allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print the API's answer")
    parser.add_argument(
        "--server", action="append", metavar="URL", help="admin address; repeat to try several"
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the admin token")
    return parser


def _verb(rest: Sequence[str]) -> str | None:
    """The verb, if it is one of ours. Raises `UsageError` for one that is not."""
    verb = next((word for word in rest if not word.startswith("-")), None)
    if verb in LATER:
        raise UsageError(f"{verb}: not available in this version")
    if verb is None or verb in VERBS:
        return verb
    import difflib

    near = difflib.get_close_matches(verb, VERBS, n=2, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    raise UsageError(f"unknown verb {verb!r}{meant} (verbs: {', '.join(VERBS)})")


def _parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of one verb, or of all when none is given (then it can only help or refuse)."""
    parser = argparse.ArgumentParser(
        prog="llmgw ctl",
        description="Ask or change a running installation.",
        epilog="Without --server, the one of this machine. Environment: LLMGW_SERVER, LLMGW_TOKEN_FILE.",
        parents=[_common()],
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, words in VERBS.items():
        if verb in {None, name}:
            one = verbs.add_parser(
                name, help=words, description=words, parents=[_common()], allow_abbrev=False
            )
            _arguments(name, one)
    return parser


def _arguments(verb: str, parser: argparse.ArgumentParser) -> None:
    match verb:
        case "explain-placement":
            parser.add_argument("model")
            parser.add_argument("--all", action="store_true", help="list every node")
        case "logs":
            parser.add_argument("replica")
            parser.add_argument(
                "-n", "--lines", type=int, default=100, metavar="N", help="lines to begin with"
            )
            parser.add_argument("-f", "--follow", action="store_true", help="go on as lines come")
            parser.add_argument("--rank", type=int, default=0, help="of which shard (default 0, the leader)")
        case "events":
            parser.add_argument("-n", "--limit", type=int, default=50, metavar="N", help="at most so many")
            parser.add_argument("--model", help="of one model")
            parser.add_argument("--node", help="of one node")
        case "cordon" | "uncordon":
            parser.add_argument("node")
            parser.add_argument("--reason", default="", help="kept with the mark and shown to others")
        case _:
            pass  # needs nothing but its name


def _targets(common: argparse.Namespace, around: Surroundings) -> tuple[Target, ...]:
    """Which servers to ask, with which token. Raises `UsageError`, `Unreachable`."""
    urls = common.server or around.servers
    token_file = common.token_file or around.token_file
    token = _read_token(token_file) if token_file else None
    if not urls:
        if token is not None:
            found = around.found or (Target("http", "127.0.0.1", 8081),)
            return tuple(msgspec.structs.replace(one, token=token) for one in found)
        if not around.found:
            raise Unreachable(_nothing_found(around))
        return around.found
    try:
        targets = [Target.parse(url, token) for url in urls]
    except ValueError as error:
        raise UsageError(str(error)) from None
    return tuple(_with_token(target, around) for target in targets)


def _with_token(target: Target, around: Surroundings) -> Target:
    """A target with a token of this machine where none was given; never sent to another machine."""
    if target.token is not None:
        return target
    here = [one for one in around.found if target.loopback]
    same_port = [one for one in here if one.port == target.port]
    for one in (*same_port, *here):
        return msgspec.structs.replace(target, token=one.token)
    raise UsageError(f"{target.url}: needs --token-file FILE (or LLMGW_TOKEN_FILE) with its admin token")


def _nothing_found(around: Surroundings) -> str:
    looked = f"no server of this machine is known (looked in {', '.join(around.looked_in)})"
    if around.unreadable:
        looked = f"{', '.join(around.unreadable)} may be read by its owner only: run as that user, or"
        return f"{looked} give --server URL and --token-file FILE"
    return f"{looked}: give --server URL and --token-file FILE"


def _read_token(path: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            token = file.read(4096).strip()
    except OSError as error:
        raise UsageError(f"token file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"token file {path}: is not text") from None
    if not token.isascii() or len(token.split()) != 1:
        raise UsageError(f"token file {path}: must hold the admin token and nothing else")
    return token


# ---------------------------------------------------------------- the verbs


class Asked(msgspec.Struct, frozen=True):
    """One command: whom to ask, what for, and how to print."""

    client: Client
    options: argparse.Namespace
    as_json: bool
    look: Look

    def answer(self, data: bytes, kind: type[T], text: Callable[[T, Look], str]) -> None:
        """Print an answer as JSON, or in words."""
        if self.as_json:
            _print_json(data)
        else:
            print(text(msgspec.json.decode(data, type=kind), self.look))


def _print_json(data: bytes) -> None:
    print(msgspec.json.format(data, indent=2).decode())


def _status(asked: Asked) -> None:
    asked.answer(asked.client.get(f"{V1}/status"), Status, show.status)


def _nodes(asked: Asked) -> None:
    asked.answer(asked.client.get(f"{V1}/nodes"), list[NodeRow], show.nodes)


def _replicas(asked: Asked) -> None:
    asked.answer(asked.client.get(f"{V1}/replicas"), list[ReplicaRow], show.replicas)


def _models(asked: Asked) -> None:
    asked.answer(asked.client.get(f"{V1}/models"), list[ModelRow], show.models)


def _routers(asked: Asked) -> None:
    asked.answer(asked.client.get(f"{V1}/routers"), list[RouterRow], show.routers)


def _explain(asked: Asked) -> None:
    data = asked.client.get(f"{V1}/models/{quoted(asked.options.model)}/explain")
    every = bool(asked.options.all)
    asked.answer(data, Explanation, lambda answer, look: show.explanation(answer, look, every=every))


def _events(asked: Asked) -> None:
    options = asked.options
    data = asked.client.get(f"{V1}/events", limit=options.limit, model=options.model, node=options.node)
    asked.answer(data, list[EventRow], show.events)


def _logs(asked: Asked) -> None:
    options = asked.options
    path = f"{V1}/replicas/{quoted(options.replica)}/logs"
    follow = "true" if options.follow else "false"
    lines = asked.client.lines(path, rank=options.rank, lines=options.lines, follow=follow)
    if asked.as_json and not options.follow:
        _print_json(msgspec.json.encode(list(lines)))
        return
    for line in lines:
        # One JSON string a line while following: an array would never end.
        shown = msgspec.json.encode(line).decode() if asked.as_json else printable(line)
        print(shown, flush=True)


def _set_state(asked: Asked, state: NodeStateChange) -> None:
    path = f"{V1}/nodes/{quoted(asked.options.node)}/state"
    asked.answer(asked.client.put(path, state), NodeRow, lambda row, look: show.nodes([row], look))


def _cordon(asked: Asked) -> None:
    _set_state(asked, NodeStateChange("cordoned", asked.options.reason))


def _uncordon(asked: Asked) -> None:
    _set_state(asked, NodeStateChange("ready", asked.options.reason))


HANDLERS: Final = {
    "status": _status,
    "nodes": _nodes,
    "replicas": _replicas,
    "models": _models,
    "routers": _routers,
    "explain-placement": _explain,
    "logs": _logs,
    "events": _events,
    "cordon": _cordon,
    "uncordon": _uncordon,
}
