"""Starts what is measured: nothing in between, nginx, and our router; stops each while another is measured.

Every proxy has one worker on one core, keeps its connections to the engines, passes pieces on as they
come, picks the engine with the fewest requests and wants the bearer key.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
import psutil

from bench.rig.feeder import Feeder
from bench.rig.instrument import CannotMeasure, Engine, pinned
from llmgw.core.accounts import FreshKey
from llmgw.entry.router_settings import RouterSettings, dump
from llmgw.net.streams import WebSocketListener

START_WITHIN_S = 15.0
NO_NGINX = "nginx is not installed, so that nothing is compared with it: apt-get install nginx-light"

NGINX_CONF = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    upstream engines {{
        least_conn;
        {servers}
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    map_hash_bucket_size 256;
    map $http_authorization $known {{
        default 0;
        "Bearer {key}" 1;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        client_max_body_size 32m;
        client_body_buffer_size 64k;
        location / {{
            if ($known = 0) {{ return 401; }}
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


class Subject(msgspec.Struct, frozen=True):
    """One thing that is measured. Without processes it is the engine itself."""

    name: str
    port: int
    pids: tuple[int, ...] = ()

    def rest(self) -> None:
        """Take no CPU until `wake`."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Go on."""
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)

    def rss_mb(self) -> float:
        """Resident memory of its processes, MB; pages they share are counted in each."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.pids) / 1e6

    def cpu_s(self) -> float:
        """CPU time of its processes so far."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


class Site(msgspec.Struct, frozen=True):
    """Where subjects run: scratch folder, core, engines, and the key clients send."""

    folder: Path
    cores: frozenset[int]
    engine: Engine
    key: FreshKey


def nginx_binary() -> str | None:
    """Where nginx is, if it is."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def nginx_conf(site: Site, port: int) -> str:
    """The whole configuration."""
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in site.engine.ports)
    return NGINX_CONF.format(folder=site.folder, servers=servers, key=site.key.text, port=port)


@contextlib.asynccontextmanager
async def nginx(site: Site) -> AsyncIterator[Subject]:
    """nginx for the length of the block. Raises `CannotMeasure`."""
    binary = nginx_binary()
    if binary is None:
        raise CannotMeasure(NO_NGINX)
    port = free_port()
    conf = site.folder / "nginx.conf"
    conf.write_text(nginx_conf(site, port))
    folder = str(site.folder)
    async with _process(site, "nginx", binary, "-p", folder, "-c", str(conf), "-e", "nginx-start.log") as pid:
        await answers(f"http://127.0.0.1:{port}/", 401, site.folder / "nginx.log")
        workers = tuple(child.pid for child in psutil.Process(pid).children())
        yield Subject("nginx", port, (pid, *workers))


@contextlib.asynccontextmanager
async def router(site: Site, feeder: Feeder) -> AsyncIterator[Subject]:
    """Our router process, fed by `feeder`, for the length of the block. Raises `CannotMeasure`."""
    watch = f"unix:{site.folder}/watch.sock"
    settings = site.folder / "router.json"
    settings.write_bytes(dump(RouterSettings(watch=watch, listen="127.0.0.1:0")))
    listening = await WebSocketListener().listen(watch, {"/watch": feeder})
    command = (sys.executable, "-m", "llmgw", "router", "--child", str(settings), "--index", "0")
    try:
        async with _process(site, "router", *command) as pid:
            try:
                async with asyncio.timeout(START_WITHIN_S):
                    address = await feeder.serving()
            except TimeoutError as late:
                raise CannotMeasure(
                    f"the router did not start: {_end_of(site.folder / 'router.log')}"
                ) from late
            port = int(address.rpartition(":")[2])
            await answers(f"http://127.0.0.1:{port}/readyz", 200, site.folder / "router.log")
            yield Subject("router", port, (pid,))
    finally:
        await listening.aclose()


@contextlib.asynccontextmanager
async def _process(site: Site, name: str, *command: str) -> AsyncIterator[int]:
    """A process on the subject's core; its output goes to a file in the scratch folder."""
    with (site.folder / f"{name}.log").open("wb") as log, pinned(site.cores):
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=site.folder
        )
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def answers(url: str, status: int, log: Path) -> None:
    """Wait until a subject answers with this status. Raises `CannotMeasure`, with the end of its log."""
    if not await asyncio.to_thread(_answers_soon, url, status):
        raise CannotMeasure(f"no {status} from {url} within {START_WITHIN_S:g} s: {_end_of(log)}")


def _answers_soon(url: str, status: int) -> bool:
    until = time.monotonic() + START_WITHIN_S
    while time.monotonic() < until:
        if _status(url) == status:
            return True
        time.sleep(0.02)
    return False


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-500:] or "it said nothing"


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def busy_s(cores: frozenset[int]) -> Mapping[int, float]:
    """Seconds each of these cores has been busy since the machine started, whoever it was."""
    times = psutil.cpu_times(percpu=True)
    return {core: sum(times[core]) - times[core].idle - times[core].iowait for core in cores}
