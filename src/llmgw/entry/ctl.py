"""Runs `llmgw ctl`: looks at the terminal, the environment and this machine's servers, then asks.

Law: imports nothing heavy; an operator's answer must not wait for the program that gives it.
"""

import os
import shutil
import sys
from pathlib import Path

from llmgw.ctl.client import Target
from llmgw.ctl.command import Surroundings, run
from llmgw.ctl.table import Look
from llmgw.entry.folders import ADMIN_ADDRESS, ADMIN_TOKEN, SYSTEM_DATA, default_data_folder

DEFAULT_ADDRESS = "127.0.0.1:8081"


def main(argv: list[str]) -> int:
    """`llmgw ctl VERB …`."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a C locale prints ? for é
    return run(argv, surroundings())


def surroundings() -> Surroundings:
    """What is around this command."""
    folders = (default_data_folder(os.environ), SYSTEM_DATA)
    found, unreadable = [], []
    for folder in folders:
        try:
            found.append(_server_of(folder))
        except FileNotFoundError:
            continue
        except (OSError, ValueError):
            unreadable.append(str(folder / ADMIN_TOKEN))
    return Surroundings(
        look=_look(),
        servers=tuple(os.environ.get("LLMGW_SERVER", "").replace(",", " ").split()),
        token_file=os.environ.get("LLMGW_TOKEN_FILE") or None,
        found=tuple(found),
        looked_in=tuple(map(str, folders)),
        unreadable=tuple(unreadable),
    )


def _server_of(folder: Path) -> Target:
    """The server whose state is in a folder. Raises `OSError`, `ValueError`."""
    token = (folder / ADMIN_TOKEN).read_text("utf-8").strip()
    try:
        address = (folder / ADMIN_ADDRESS).read_text("utf-8").strip()
    except FileNotFoundError:
        address = DEFAULT_ADDRESS
    return Target.parse(address, token)


def _look() -> Look:
    if not sys.stdout.isatty():
        return Look()
    colour = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return Look(shutil.get_terminal_size().columns, colour)
