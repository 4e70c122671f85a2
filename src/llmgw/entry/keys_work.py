"""Runs `llmgw keys`: changes accounts in the store, prints them for people or as JSON.

Laws: a secret is printed once, by the command that makes it, alone on stdout (words go to stderr); what
is printed of others' choosing is words, never terminal commands.
"""

import argparse
import getpass
import json
import os
import pwd
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from llmgw.core import accounts
from llmgw.core.accounts import ApiKey, BadName, Group, Level
from llmgw.core.text import printable
from llmgw.core.units import BadUnit, parse_duration
from llmgw.entry import store_cli
from llmgw.entry.process import CannotRun
from llmgw.entry.store_cli import DONE
from llmgw.store import api_keys, groups
from llmgw.store.api_keys import KeyDraft
from llmgw.store.database import Database, database_time
from llmgw.store.groups import AccountRefused, Actor

Command = Callable[[Database, argparse.Namespace], Awaitable[None]]

WIDTH_OF_A_PIPE = 400  # columns; what a program reads is never cut


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked; 0 done, 1 refused or failed."""
    return store_cli.guarded(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.level == "hash":
        return _hash()
    command = _COMMANDS["key" if arguments.level == "key" else "group", arguments.verb]

    async def work(database: Database) -> int:
        await store_cli.prepare(database, random.SystemRandom())
        await command(database, arguments)
        return DONE

    url = store_cli.store_url(arguments.config, arguments.data)
    try:
        return store_cli.with_database(url, work)
    except (AccountRefused, BadName, BadUnit) as error:
        raise CannotRun(str(error)) from error


def _actor() -> Actor:
    """Who runs this, as the operating system says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name, "shell"
    except KeyError:
        return str(os.getuid()), "shell"


# ---------------------------------------------------------------- organisations, teams, projects, users


async def _create_group(database: Database, arguments: argparse.Namespace) -> None:
    level, draw = Level(arguments.level), random.SystemRandom()
    group = await database.write(lambda c: groups.create_group(c, level, arguments.path, draw, _actor()))
    if arguments.json:
        _print_json(_group_fields(group))
    else:
        print(f"{level.value} {group.path} created, id {group.id}")


async def _list_groups(database: Database, arguments: argparse.Namespace) -> None:
    level = Level(arguments.level)
    found = await database.run(lambda c: groups.list_groups(c, level))
    if arguments.json:
        _print_json([_group_fields(group) for group in found])
        return
    rows = [(g.path, g.id, _date(g.created_at), "disabled" if g.disabled else "active") for g in found]
    _print_table((level.value.upper(), "ID", "CREATED", "STATE"), rows)


def _group_fields(group: Group) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(group)
    return {"name": group.path.rpartition("/")[2], **fields}


# ---------------------------------------------------------------- keys


async def _create_key(database: Database, arguments: argparse.Namespace) -> None:
    draft = KeyDraft(
        name=arguments.name,
        project=arguments.project,
        user=arguments.user,
        expires_in_s=None if arguments.expires is None else parse_duration(arguments.expires),
        models=None if arguments.models is None else accounts.parse_models(arguments.models),
    )
    draw = random.SystemRandom()
    key, fresh = await database.write(lambda c: api_keys.create_key(c, draft, draw, _actor()))
    if arguments.json:
        _print_json({"key": fresh.text, **_key_fields(key)})
        return
    until = f", until {_date(key.expires_at)}" if key.expires_at is not None else ""
    print(f"key {key.id} for project {key.project}{until}; it is not shown again:", file=sys.stderr)
    print(fresh.text)


async def _list_keys(database: Database, arguments: argparse.Namespace) -> None:
    found, now = await database.run(lambda c: (api_keys.list_keys(c, arguments.project), database_time(c)))
    if arguments.json:
        _print_json([_key_fields(key) for key in found])
        return
    columns = ("ID", "NAME", "PROJECT", "USER", "KEY", "MODELS", "EXPIRES", "LAST USED", "STATE")
    _print_table(columns, [_key_row(key, now) for key in found])


async def _disable_keys(database: Database, arguments: argparse.Namespace) -> None:
    changed = await database.write(
        lambda c: [api_keys.disable_key(c, key, _actor()) for key in arguments.keys]
    )
    _print_changed(changed, "disabled", arguments.json)


async def _delete_keys(database: Database, arguments: argparse.Namespace) -> None:
    changed = await database.write(
        lambda c: [api_keys.delete_key(c, key, _actor()) for key in arguments.keys]
    )
    _print_changed(changed, "deleted", arguments.json)


def _print_changed(keys: Sequence[ApiKey], done: str, as_json: bool) -> None:
    if as_json:
        _print_json([_key_fields(key) for key in keys])
        return
    for key in keys:
        print(f"key {key.id} ({printable(key.name)}) {done}")


def _key_fields(key: ApiKey) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(key)
    return {**fields, "public_id": key.public_ids[-1]}


def _key_row(key: ApiKey, now: float) -> tuple[str, ...]:
    expired = key.expires_at is not None and key.expires_at <= now
    return (
        key.id,
        key.name,
        key.project,
        key.user or "-",
        ", ".join(f"{accounts.KEY_PREFIX}{public_id}-…" for public_id in key.public_ids),
        "all" if key.models is None else ",".join(key.models),
        _date(key.expires_at),
        _date(key.last_used_at),
        "disabled" if key.disabled else "expired" if expired else "active",
    )


def _hash() -> int:
    """The line of the key on stdin."""
    text = getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()
    line = accounts.hash_line(text.strip())
    if line is None:
        raise CannotRun(f"that is no key; one begins with {accounts.KEY_PREFIX}")
    print(line)
    return DONE


_COMMANDS: Mapping[tuple[str, str], Command] = {
    ("group", "create"): _create_group,
    ("group", "list"): _list_groups,
    ("key", "create"): _create_key,
    ("key", "list"): _list_keys,
    ("key", "disable"): _disable_keys,
    ("key", "delete"): _delete_keys,
}


# ---------------------------------------------------------------- printing


def _date(at: float | None) -> str:
    return "-" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ")


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False).print(table)
