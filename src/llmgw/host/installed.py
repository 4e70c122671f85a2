"""Finds the engines installed on this machine, without running any (A3).

Laws: a program is looked up, never started, since what stands in for it may start a server; a Python
module is looked up in the interpreter the engine would use, and the exit code is the answer; what is
written in the agent's file wins over what is found; a look that did not end is unknown, not missing.
"""

import importlib
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from glob import glob
from pathlib import Path

import msgspec

from llmgw.core.inventory import EngineInstall
from llmgw.engines import ADAPTERS
from llmgw.engines.adapter import Locate

LOOKUP_WITHIN_S = 10.0
_LOOKUP = "import importlib.util as u, sys; sys.exit(any(u.find_spec(n) is None for n in sys.argv[1:]))"

_LOG = logging.getLogger(__name__)


class EngineSearch(msgspec.Struct, frozen=True):
    """Where to look: the agent's PATH and interpreter, and what its file names."""

    path: str
    python: str
    written: Mapping[str, str] = {}


def find_engines(search: EngineSearch) -> dict[str, EngineInstall]:
    """Every install by name. Raises `subprocess.TimeoutExpired` when an interpreter did not answer."""
    found = {
        name: install
        for name, adapter in ADAPTERS.items()
        if (install := _find(name, adapter.locate, search)) is not None
    }
    for name, path in search.written.items():
        install = _written(name, path)
        if install is None:
            _LOG.warning("engines.%s: nothing that can be run at %s; it is not offered", name, path)
            found.pop(name, None)
        else:
            found[name] = install
    return found


def _find(kind: str, locate: Locate, search: EngineSearch) -> EngineInstall | None:
    for binary in locate.binaries:
        path = shutil.which(binary, path=search.path)
        if path is not None:
            return EngineInstall(kind, path=str(Path(path).absolute()))
    for pattern in locate.archives:
        # The newest by name: archives are unpacked beside their predecessors.
        for path in sorted(glob(pattern), reverse=True):  # noqa: PTH207  absolute patterns
            if _runnable(path):
                return EngineInstall(kind, path=path)
    for module in locate.modules:
        importlib.invalidate_caches()  # it may have been installed since the last look
        if importlib.util.find_spec(module) is not None:
            return EngineInstall(kind, path=search.python, version=_version(module), module=module)
    return EngineInstall(kind) if locate.built_in else None


def _written(name: str, path: str) -> EngineInstall | None:
    kind = kind_of(name)
    if not _runnable(path):
        return None
    adapter = ADAPTERS.get(kind)
    if adapter is None or not adapter.locate.modules or not Path(path).name.startswith("python"):
        return EngineInstall(kind, path=path)
    # Its server is started by a module of llmgw, so the interpreter needs both.
    module = adapter.locate.modules[0]
    there = subprocess.run(
        [path, "-P", "-c", _LOOKUP, module, "llmgw"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LOOKUP_WITHIN_S,
        check=False,
    )
    return EngineInstall(kind, path=path, module=module) if there.returncode == 0 else None


def kind_of(name: str) -> str:
    """The engine an install's name stands for: itself, or the longest known name it begins with (E7a)."""
    known = [kind for kind in ADAPTERS if name == kind or name.startswith(f"{kind}-")]
    return max(known, key=len, default=name)


def _runnable(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)


def _version(module: str) -> str | None:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return None
