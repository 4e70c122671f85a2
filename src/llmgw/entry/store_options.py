"""Decides how the commands `keys` and `db` are told which store they work on.

Law: an option means the same before and after the verb.
"""

import argparse


def add_store_options(parser: argparse.ArgumentParser, *, top: bool) -> None:
    """`--config` and `--data`; `top` sets the defaults, parsers below it keep what was given above."""
    default = None if top else argparse.SUPPRESS
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--config", metavar="FILE", default=default, help="the server's server.yaml")
    where.add_argument(
        "--data", metavar="DIR", default=default, help="the data folder of `llmgw up` (default: its default)"
    )
