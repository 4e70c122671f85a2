"""Says what a measurement was taken on: commit, machine, time; and keeps results as files."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def commit() -> str:
    """The commit measured, with `+` when the working tree differs from it."""
    head = _git("rev-parse", "--short", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "pyproject.toml")
    return head + ("+" if dirty else "")


def machine() -> dict[str, Any]:
    """What it ran on: cores, memory, processor, kernel, Python."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9, 1),
        "processor": _processor(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def save(name: str, result: dict[str, Any]) -> Path:
    """Write one measurement with its circumstances; the file `bench.report` reads."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    now = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    whole = {"measured": now, "commit": commit(), "machine": machine(), **result}
    path.write_text(json.dumps(whole, indent=1) + "\n")
    return path


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
