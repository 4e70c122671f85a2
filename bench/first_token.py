"""Measures how long a newcomer waits: `make run` to the first token of a real model, cold and again.

Cold is a fresh clone without `.venv` and without data, with the packages in pip's cache; the second run
reuses both. The clock starts with `make run` and stops at the first streamed piece of text that a plain
HTTP client receives from the printed address.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.facts import ROOT, save

LIMIT_S = 540.0


def main() -> int:
    """Run the measurement and write bench/results/first_token.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_token", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="fresh clones to measure (default 3)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    cold: list[float] = []
    second: list[float] = []
    for _ in range(options.runs):
        first, again = measure_once()
        cold.append(first)
        second.append(again)
    result = {
        "cold_s": cold,
        "second_s": second,
        "cold_median_s": statistics.median(cold),
        "second_median_s": statistics.median(second),
    }
    path = save("first_token", result)
    print(json.dumps(result) if options.json else f"wrote {path.relative_to(ROOT)}: {result}")
    return 0


def measure_once() -> tuple[float, float]:
    """Seconds to the first token in a fresh clone, then in the same one again."""
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        clone = Path(folder) / "llmgw"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        data = Path(folder) / "data"
        return time_to_first_token(clone, data), time_to_first_token(clone, data)


def time_to_first_token(clone: Path, data: Path) -> float:
    """Start `make run`, wait for a streamed piece of text, stop it; seconds in between."""
    port, admin_port = free_port(), free_port()
    arguments = f"--data {data} --port {port} --admin-port {admin_port}"
    started = time.monotonic()
    with running(["make", "run", f"ARGS={arguments}"], clone):
        key = wait_for_file(data / "first-key", started)
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if first_piece(port, key):
                    return time.monotonic() - started
            if time.monotonic() - started > LIMIT_S:
                raise SystemExit(f"no token within {LIMIT_S:.0f} s; see {data}/logs")
            time.sleep(0.05)


@contextlib.contextmanager
def running(argv: list[str], folder: Path) -> Iterator[None]:
    """A command in its own session, ended by SIGINT as a person would."""
    log = (folder / "bench.log").open("ab")
    process = subprocess.Popen(
        argv, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
        log.close()


def wait_for_file(path: Path, started: float) -> str:
    """The key `up` wrote, once it is there."""
    while time.monotonic() - started < LIMIT_S:
        with contextlib.suppress(FileNotFoundError):
            if text := path.read_text().strip():
                return text
        time.sleep(0.05)
    raise SystemExit(f"{path} did not appear within {LIMIT_S:.0f} s")


def first_piece(port: int, key: str) -> str | None:
    """Ask the first model for a streamed answer; its first text, or None when it cannot serve yet."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models", headers=headers)
        models = json.loads(connection.getresponse().read()).get("data", [])
        if not models:
            return None
        body = {
            "model": models[0]["id"],
            "stream": True,
            "max_tokens": 8,
            "messages": [{"role": "user", "content": "Say hello."}],
        }
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            return None
        for line in answer:
            if text := _text_of(line.decode()):
                return text
    return None


def _text_of(line: str) -> str | None:
    if not line.startswith("data: {"):
        return None
    choices = json.loads(line.removeprefix("data: ")).get("choices") or [{}]
    text: str | None = choices[0].get("delta", {}).get("content")
    return text


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
