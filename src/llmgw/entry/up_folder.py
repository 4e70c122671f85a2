"""Keeps the data folder of `llmgw up`: its lock, its configuration files, its first key.

Laws: one `up` a folder; server.yaml and agent.yaml are written once and belong to the user, flags given
later change only what they name; the first key's file is there before the database has the key, so that
none is ever made that nobody can read.
"""

import contextlib
import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from sqlalchemy.engine import URL, Connection

from llmgw.core import defaults
from llmgw.core.units import format_bytes, write_duration
from llmgw.engines import ENGINE_TRAITS
from llmgw.entry import up_model, yaml_edit
from llmgw.entry.config_common import ConfigError
from llmgw.entry.config_server import ServerConfig, load_server_config
from llmgw.entry.process import CannotRun
from llmgw.entry.up_model import LocalModel
from llmgw.entry.yaml_edit import CannotEdit, scalar, set_value
from llmgw.host.netports import port_free
from llmgw.ports import StoreUnavailable
from llmgw.store import api_keys
from llmgw.store.address import SqliteFile, parse_store_url
from llmgw.store.api_keys import KeyDraft
from llmgw.store.migrations import NewerDatabase
from llmgw.store.opening import open_database
from llmgw.store.store import ensure_default_project, migrate

FIRST_KEY_NAME = "first"
# Below the ports the kernel gives to outgoing connections, above those engines get.
AGENT_PORTS = range(30000, 32768)


class Folder(msgspec.Struct, frozen=True):
    """Where everything of one `llmgw up` lies."""

    path: Path

    @property
    def server_yaml(self) -> Path:
        return self.path / "server.yaml"

    @property
    def agent_yaml(self) -> Path:
        return self.path / "agent.yaml"

    @property
    def agent_state(self) -> Path:
        return self.path / "agent"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def first_key(self) -> Path:
        return self.path / "first-key"

    @property
    def database(self) -> Path:
        return self.path / "llmgw.db"


class Wishes(msgspec.Struct, frozen=True):
    """What the command line asks to be different from what is written; `None` leaves it."""

    port: int | None = None
    admin_port: int | None = None
    model: LocalModel | None = None
    sim: bool = False


# The database, its journal and a first round of logs.
ROOM_MIN = 16 * 10**6


@contextlib.contextmanager
def held(path: Path) -> Iterator[Folder]:
    """The folder, made and locked for this process. Raises `CannotRun`."""
    with refusing(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / "logs").mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
            raise CannotRun(
                f"another `llmgw up` (pid {pid}) uses {path}: stop it, or give another folder with --data"
            ) from None
        check_room(path)
        with refusing(path):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield Folder(path)
    finally:
        os.close(lock)


def check_room(path: Path) -> None:
    """Refuse a full disk before anything is half written there. Raises `CannotRun`."""
    with refusing(path):
        disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    if free < ROOM_MIN:
        raise CannotRun(
            f"data folder: {path}: the disk is full: {format_bytes(free)} free, "
            f"{format_bytes(ROOM_MIN)} needed; make room there, or give another with --data"
        )


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Say in one line what the system says of the data folder."""
    try:
        yield
    except OSError as error:
        what = error.filename or path
        raise CannotRun(
            f"data folder: {what}: {error.strerror}; make room or rights there, or give another with --data"
        ) from error


# ---------------------------------------------------------------- configuration


def configure(folder: Folder, wishes: Wishes, draw: random.Random) -> ServerConfig:
    """Write what is not there, change what is asked, and read it as the server will. Raises `CannotRun`."""
    with refusing(folder.path):
        if not folder.server_yaml.exists():
            _write(folder.server_yaml, _new_server_yaml(folder, wishes, draw))
        else:
            _change(folder.server_yaml, wishes)
        config = load(folder)
        config = _free_agent_port(folder, config, draw)
        if not folder.agent_yaml.exists():
            _write(folder.agent_yaml, _new_agent_yaml(config.agents.listen))
    return config


def load(folder: Folder) -> ServerConfig:
    """server.yaml as the server reads it. Raises `CannotRun` with every problem."""
    try:
        return load_server_config(folder.server_yaml, ENGINE_TRAITS)
    except ConfigError as error:
        raise CannotRun("\nllmgw: ".join(error.lines)) from error


def _new_server_yaml(folder: Folder, wishes: Wishes, draw: random.Random) -> str:
    url = URL.create("sqlite", database=str(folder.database)).render_as_string(hide_password=False)
    if parse_store_url(url) != SqliteFile(folder.database):
        raise CannotRun(f"{folder.path}: has characters a database's address cannot hold; use another --data")
    models = [up_model.model_item(wishes.model)] if wishes.model is not None else []
    models += [up_model.sim_item()] if wishes.sim else []
    clients_host, admin_host = _host(defaults.CLIENT_LISTEN), _host(defaults.ADMIN_LISTEN)
    lines = [
        "# Written once by `llmgw up`, and yours to change; it takes effect at the next start.",
        "clients:",
        f"  listen: {clients_host}:{wishes.port or _port(defaults.CLIENT_LISTEN)}",
        "admin:",
        f"  listen: {admin_host}:{wishes.admin_port or _port(defaults.ADMIN_LISTEN)}",
        "agents:",
        f"  listen: 127.0.0.1:{_unused_port(draw)}",
        f"store: {scalar(url)}",
        "state_dir: .",
        "control:",
        f"  settling: {write_duration(defaults.SETTLING_UP_S)}",
        "router:",
        f"  drain: {write_duration(defaults.ROUTER_DRAIN_UP_S)}",
        "models:" if models else "models: []",
        *("  " + line for item in models for line in item.splitlines()),
    ]
    return "\n".join(lines) + "\n"


def _new_agent_yaml(server: str) -> str:
    return (
        "# Written once by `llmgw up`, and yours to change; it takes effect at the next start.\n"
        f"server: {server}\n"
        "state_dir: agent\n"
        "weights_dir: weights\n"
    )


def _change(path: Path, wishes: Wishes) -> None:
    before = text = path.read_text("utf-8")
    try:
        for key, port in (("clients", wishes.port), ("admin", wishes.admin_port)):
            if port is not None:
                text = _set_port(text, key, port)
        if wishes.model is not None:
            text = _set_model(text, wishes.model)
        if wishes.sim and up_model.SIM not in _names(text):
            text = yaml_edit.append_item(text, "models", up_model.sim_item())
    except CannotEdit as error:
        raise CannotRun(f"{path}: {error}; change it by hand and start without the option") from error
    if text != before:
        _write(path, text)


def _set_port(text: str, key: str, port: int) -> str:
    listen = _listen(text, key) or {"clients": defaults.CLIENT_LISTEN, "admin": defaults.ADMIN_LISTEN}[key]
    return set_value(text, (key, "listen"), f"{_host(listen)}:{port}")


def _set_model(text: str, model: LocalModel) -> str:
    """The model added; one that has the name already keeps its entry and gets the file."""
    names = _names(text)
    if model.name not in names:
        return yaml_edit.append_item(text, "models", up_model.model_item(model))
    return set_value(text, ("models", names.index(model.name), "source"), str(model.path))


def _names(text: str) -> list[str]:
    return [str(item.get("name")) for item in yaml_edit.items(text, "models") if isinstance(item, dict)]


def _listen(text: str, key: str) -> str | None:
    value = yaml_edit.value_at(text, (key, "listen"))
    return value if isinstance(value, str) else None


def _free_agent_port(folder: Folder, config: ServerConfig, draw: random.Random) -> ServerConfig:
    """The configuration with another agent port when somebody took ours meanwhile."""
    if not folder.agent_yaml.exists() or port_free("127.0.0.1", int(_port(config.agents.listen))):
        return config
    address = f"127.0.0.1:{_unused_port(draw)}"
    try:
        server = set_value(folder.server_yaml.read_text("utf-8"), ("agents", "listen"), address)
        agent = set_value(folder.agent_yaml.read_text("utf-8"), ("server",), address)
    except CannotEdit as error:
        taken = f"agents.listen {config.agents.listen} is taken by another process"
        raise CannotRun(f"{folder.server_yaml}: {taken}, and {error}; change it by hand") from error
    _write(folder.server_yaml, server)
    _write(folder.agent_yaml, agent)
    return load(folder)


def _unused_port(draw: random.Random) -> int:
    for _ in range(100):
        port = draw.choice(AGENT_PORTS)
        if port_free("127.0.0.1", port):
            return port
    raise CannotRun(f"no free port between {AGENT_PORTS.start} and {AGENT_PORTS.stop - 1} was found")


def _host(listen: str) -> str:
    return listen.rpartition(":")[0]


def _port(listen: str) -> str:
    return listen.rpartition(":")[2]


def _write(path: Path, text: str) -> None:
    """Write a file whole, for its owner only: a full disk leaves the old one."""
    part = path.with_name(f".{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


# ---------------------------------------------------------------- the first key


async def prepare_store(folder: Folder, store: str, draw: random.Random) -> str | None:
    """Make database, default project and first key; the key when it was made now. Raises `CannotRun`."""
    try:
        database = open_database(store)
        try:
            await migrate(database, draw)
            await ensure_default_project(database, draw)
            if await database.run(api_keys.list_keys):
                return None
            return await database.write(lambda connection: _first_key(folder, connection, draw))
        finally:
            await database.aclose()
    except (StoreUnavailable, NewerDatabase) as error:
        raise CannotRun(f"database: {error}") from error


def _first_key(folder: Folder, connection: Connection, draw: random.Random) -> str:
    _, fresh = api_keys.create_key(connection, KeyDraft(FIRST_KEY_NAME), draw, ("up", "command"))
    with refusing(folder.path):
        _write(folder.first_key, fresh.text + "\n")
    return fresh.text
