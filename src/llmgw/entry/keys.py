"""Decides what `llmgw keys` accepts, and refuses by name what this version cannot do; keys_work.py does it.

Laws: an option that is accepted has its effect, any other is an error; nothing heavy is imported before
the command line is known to be right.
"""

import argparse
import sys
from collections.abc import Mapping

from llmgw.entry.store_options import add_store_options

USAGE = 2
LEVELS = ("org", "team", "project", "user", "key")
VERBS = ("create", "list", "update", "move", "disable", "delete", "rotate")
_GROUP_VERBS = ("create", "list")
_KEY_VERBS = ("create", "list", "disable", "delete")
_LIMITS = ("rpm", "tpm", "concurrent", "tokens-per-day", "tokens-per-month", "cost-per-month")
_PATHS: Mapping[str, str] = {
    "org": "ORG",
    "team": "ORG/TEAM",
    "project": "ORG/TEAM/PROJECT",
    "user": "ORG/USER",
}
_WORDS: Mapping[str, str] = {
    "org": "organisations",
    "team": "teams",
    "project": "projects",
    "user": "users",
    "key": "API keys",
}


def main(argv: list[str]) -> int:
    """Run the command; 0 done, 1 refused or failed, 2 usage."""
    arguments = _parser().parse_args(argv)
    later = _not_in_this_version(arguments)
    if later:
        print(f"llmgw: keys: {later} not available in this version", file=sys.stderr)
        return USAGE
    from llmgw.entry.keys_work import run  # the database's libraries: not for a --help

    return run(arguments)


def _not_in_this_version(arguments: argparse.Namespace) -> str | None:
    """What was asked for that does not exist yet, with its verb."""
    if arguments.level == "hash":
        return None
    if arguments.verb not in (_KEY_VERBS if arguments.level == "key" else _GROUP_VERBS):
        return f"{arguments.level} {arguments.verb} is"
    given = [f"--{name}" for name in _LIMITS if getattr(arguments, name.replace("-", "_"), None) is not None]
    return f"limits ({', '.join(given)}) are" if given else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmgw keys",
        description="Organisations, teams, projects, users and API keys, in the server's store. "
        "A running server and its routers follow every change.",
    )
    _shared(parser, top=True)
    levels = parser.add_subparsers(dest="level", required=True, metavar="LEVEL")
    for level in LEVELS:
        words = _WORDS[level]
        below = levels.add_parser(level, help=words, description=words)
        _shared(below, top=False)
        verbs = below.add_subparsers(dest="verb", required=True, metavar="VERB")
        for verb in VERBS:
            _add_verb(verbs, level, verb)
    words = "read a key on stdin, print its line for the `keys:` list of a router-only server.yaml"
    levels.add_parser("hash", help=words, description=words)
    return parser


def _shared(parser: argparse.ArgumentParser, *, top: bool) -> None:
    add_store_options(parser, top=top)
    default = False if top else argparse.SUPPRESS
    parser.add_argument("--json", action="store_true", default=default, help="print JSON")


def _add_verb(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", level: str, verb: str) -> None:
    offered = verb in (_KEY_VERBS if level == "key" else _GROUP_VERBS)
    if not offered:
        # Whatever follows: the answer is that the verb is not there yet, not what it would take.
        late = verbs.add_parser(verb, add_help=False, prefix_chars="\0")
        late.add_argument("rest", nargs="*")
        return
    parser = verbs.add_parser(verb, help=f"{verb} {_WORDS[level]}", allow_abbrev=False)
    _shared(parser, top=False)
    if level == "key":
        _add_key_arguments(parser, verb)
    elif verb == "create":
        parser.add_argument("path", metavar=_PATHS[level])
    if verb == "create":
        for name in _LIMITS:
            parser.add_argument(f"--{name}", metavar="N", help=argparse.SUPPRESS)


def _add_key_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb in ("create", "list"):
        parser.add_argument("--project", metavar="ORG/TEAM/PROJECT", help="default: the default project")
    if verb == "create":
        parser.add_argument("--name", required=True, help="what it is for, as people will see it in lists")
        parser.add_argument("--user", metavar="ORG/USER", help="whose it is")
        parser.add_argument("--models", metavar="LIST", help="names or globs, with commas: 'qwen*,llama-3'")
        parser.add_argument("--expires", metavar="DURATION", help="like 90d")
    if verb in ("disable", "delete"):
        parser.add_argument("keys", metavar="KEY", nargs="+", help="id, public id, or a name only it has")
