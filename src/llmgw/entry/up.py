"""Runs `llmgw up`: a server and an agent on this machine, until a model answers and until it is stopped.

Laws: what a person must mend is found before anything starts, in one line; a model that does not start is
said with its reason and everything else keeps running; when `up` ends, whatever it started has ended.
"""

import argparse
import asyncio
import os
import random
import sys
from pathlib import Path
from typing import Any

import msgspec

from llmgw.aio.tasks import Tasks
from llmgw.core.catalog import Mode
from llmgw.entry import up_machine, up_model
from llmgw.entry.config_server import ServerConfig
from llmgw.entry.folders import default_data_folder
from llmgw.entry.paths import admin_token_path
from llmgw.entry.process import CannotRun, Stop, run_role
from llmgw.entry.up_children import MARK, Children, roles
from llmgw.entry.up_folder import Folder, Wishes, configure, held, prepare_store
from llmgw.entry.up_screen import Screen
from llmgw.entry.up_text import Serving, welcome
from llmgw.entry.up_watch import watch

EARLIER_S = 15.0  # a server that drains and an agent that stops engines take less
SERVER_STOP_S = 5.0  # on top of what streams are given
AGENT_STOP_S = 15.0  # engines are given 10
LEFT_STOP_S = 3.0


class Options(msgspec.Struct, frozen=True):
    """The command line."""

    data: Path
    port: int | None = None
    admin_port: int | None = None
    model: str | None = None
    sim: bool = False


def main(argv: list[str]) -> int:
    """`llmgw up`."""
    options = _options(argv)
    screen = Screen(sys.stdout)
    return run_role(lambda stop: serve(options, stop, screen))


def _options(argv: list[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="llmgw up",
        description="Serve a model on this machine: a server, an agent and a first API key.",
        epilog="Options are written to DIR/server.yaml and hold for later runs too.",
        allow_abbrev=False,
    )
    default = default_data_folder(os.environ)
    parser.add_argument("--data", metavar="DIR", type=Path, default=default, help=f"data folder ({default})")
    parser.add_argument("--port", metavar="N", type=_port, help="for clients, on every address (8080)")
    parser.add_argument("--admin-port", metavar="N", type=_port, help="for the dashboard, on loopback (8081)")
    parser.add_argument(
        "--model", metavar="SOURCE", help="a .gguf file to serve too (first run: the small one installed)"
    )
    parser.add_argument("--sim", action="store_true", help="serve the simulated model `sim` too")
    given = parser.parse_args(argv)
    return Options(given.data.expanduser().absolute(), given.port, given.admin_port, given.model, given.sim)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 1-65535")
    return int(text)


async def serve(options: Options, stop: Stop, screen: Screen) -> int:
    """Prepare, start, say when it serves, stop. Raises `CannotRun`."""
    draw = random.SystemRandom()
    with held(options.data) as folder:
        await _end_earlier(folder, screen)
        config = configure(folder, _wishes(options, folder), draw)
        _check(config, folder)
        key = await prepare_store(folder, config.store, draw)
        if stop.requested.is_set():
            return 0
        async with Tasks() as tasks:
            children = Children(folder.path, tasks, screen.say, draw)
            try:
                await _run(config, folder, children, Serves(screen, key, tasks), stop)
            finally:
                await _stop(config, folder, children, stop)
    return 0


class Serves(msgspec.Struct, frozen=True):
    """What is needed to say that it serves."""

    screen: Screen
    key: str | None
    tasks: Tasks


def _wishes(options: Options, folder: Folder) -> Wishes:
    """What to write: at the first run the model installed beside us, unless told otherwise."""
    model = up_model.local_model(options.model) if options.model is not None else None
    if model is None and not folder.server_yaml.exists():
        model = up_model.installed_model()
        if model is None and not options.sim:
            raise CannotRun(
                "no model: give one with --model PATH.gguf, or --sim for the simulated one; "
                "`make setup` installs a small one"
            )
    return Wishes(options.port, options.admin_port, model, options.sim)


def _check(config: ServerConfig, folder: Folder) -> None:
    """Refuse what cannot work before anything is started. Raises `CannotRun`."""
    routers = up_machine.marked([{"LLMGW_MARK_ROUTER": str(config.state_dir)}])
    up_machine.check_port(config.clients.listen, "--port", routers)
    up_machine.check_port(config.admin.listen, "--admin-port", ())
    running = [model for model in config.catalog.models.values() if model.mode is not Mode.OFF]
    profiles = [profile for model in running for profile in model.profiles]
    if profiles and all(profile.engine == "llama.cpp" for profile in profiles):
        up_model.check_engine()
    sources = {model.source for model in running if model.source is not None}
    missing = [source for source in sources if source.startswith("/") and not Path(source).exists()]
    if missing and len(missing) == len(running):
        raise CannotRun(
            f"{missing[0]}: there is no such file; {folder.server_yaml} names it as a model's source"
        )


async def _end_earlier(folder: Folder, screen: Screen) -> None:
    """Wait for a server and an agent whose `up` was killed; they stop by themselves."""
    marks = [{MARK: str(folder.path)}]
    left = [command for command in up_machine.marked(marks).values() if _is_role(command)]
    if not left:
        return
    screen.say("an earlier run is still stopping; waiting for it")
    for verb in ("server", "agent"):
        if not await up_machine.gone(marks, f" llmgw {verb} ", EARLIER_S):
            raise CannotRun(
                f"the {verb} of an earlier run on {folder.path} does not stop; end it and try again"
            )


def _is_role(command: str) -> bool:
    return " llmgw server " in command or " llmgw agent " in command


async def _run(config: ServerConfig, folder: Folder, children: Children, serves: Serves, stop: Stop) -> None:
    """Start everything and wait for the word to stop. Raises `CannotRun` when it cannot start at all."""
    for child in roles({"server": folder.server_yaml, "agent": folder.agent_yaml}, folder.logs):
        children.start(child)
    announcing = serves.tasks.start(_announce(config, folder, children, serves), name="say when it serves")
    asked = serves.tasks.start(stop.requested.wait(), name="wait for the word to stop")
    either: tuple[asyncio.Future[Any], ...] = (asked, children.gave_up)
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    serves.screen.end_progress()
    if children.gave_up.done():
        raise children.gave_up.result()
    serves.screen.say(f"stopping; streams may finish for {config.router.drain_s:g} s (Ctrl-C again: at once)")


async def _announce(config: ServerConfig, folder: Folder, children: Children, serves: Serves) -> None:
    seen = await watch(config.admin.listen, admin_token_path(config.state_dir), serves.screen)
    children.served = True
    host, _, port = config.clients.listen.rpartition(":")
    serving = Serving(
        port=int(port),
        host=host,
        others=up_machine.addresses_for_others() if host in {"0.0.0.0", "[::]"} else (),
        admin=config.admin.listen,
        models=seen.ready,
        data=folder.path,
        key=serves.key,
        found_by_ctl=folder.path == default_data_folder(os.environ),
        program=up_machine.program(sys.argv[0]),
    )
    serves.screen.say(welcome(serving))


async def _stop(config: ServerConfig, folder: Folder, children: Children, stop: Stop) -> None:
    """End everything this run started: streams first, then engines, then what is left."""
    children.stopping.set()
    await children.stop("server", config.router.drain_s + SERVER_STOP_S, stop.hurried)
    await children.stop("agent", AGENT_STOP_S, stop.hurried)
    children.close()
    marks = [
        {MARK: str(folder.path)},
        {"LLMGW_MARK_ROUTER": str(config.state_dir)},
        {"LLMGW_MARK_STATE": str(folder.agent_state)},
    ]
    await up_machine.sweep(marks, 0.0 if stop.hurried.is_set() else LEFT_STOP_S)
