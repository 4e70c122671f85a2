"""Decides what `llmgw db` accepts; db_work.py does it.

Law: nothing heavy is imported before the command line is known to be right.
"""

import argparse

from llmgw.entry.store_options import add_store_options


def main(argv: list[str]) -> int:
    """Run the command; 0 done, 1 refused or failed, 2 usage."""
    arguments = _parser().parse_args(argv)
    from llmgw.entry.db_work import run  # the database's libraries: not for a --help

    return run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmgw db", description="the server's database")
    add_store_options(parser, top=True)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, words in (
        ("upgrade", "bring it to this version's layout (a server does so when it starts)"),
        ("check", "whether it is whole and at this version's layout"),
        ("backup", "copy it to a new file; the server may go on running"),
    ):
        verb = verbs.add_parser(name, help=words, description=words)
        add_store_options(verb, top=False)
        if name == "backup":
            verb.add_argument("path", metavar="PATH", help="a file that does not exist yet")
    return parser
