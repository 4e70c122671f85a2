"""What every adapter promises, and the particular command lines of each."""

import contextlib
import io
import re

import pytest

from llmgw.core.inventory import EngineInstall
from llmgw.core.reason import Failure
from llmgw.engines import ADAPTERS, ENGINE_TRAITS
from llmgw.engines.adapter import Exit, Launch
from llmgw.engines.llamacpp import SLOTS, LlamaCpp
from llmgw.engines.sim import Sim
from llmgw.entry import llamacpp_wheel, simengine

BINARY = EngineInstall("llama.cpp", path="/opt/llama/llama-server")
WHEEL = EngineInstall("llama.cpp", path="/venv/bin/python", module="xllamacpp")


def launch(engine: str = "llama.cpp", **changes: object) -> Launch:
    values: dict[str, object] = {
        "model": "org/tiny",
        "install": BINARY if engine == "llama.cpp" else EngineInstall(engine),
        "python": "/venv/bin/python",
        "address": "10.0.0.5",
        "port": 20001,
        "model_path": "/models/tiny.gguf",
        "engine_key": "secret",
    }
    return Launch(**(values | changes))  # type: ignore[arg-type]


def argv(engine: str = "llama.cpp", **changes: object) -> tuple[str, ...]:
    (command,) = ADAPTERS[engine].commands(launch(engine, **changes))
    return command.argv


def value(line: tuple[str, ...], option: str) -> str | None:
    return line[line.index(option) + 1] if option in line else None


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
def test_the_key_is_in_the_environment_and_in_no_argument(engine: str) -> None:
    for command in ADAPTERS[engine].commands(launch(engine)):
        assert "secret" not in " ".join(command.argv)
        assert "secret" in command.env.values()


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
def test_every_option_an_adapter_writes_itself_is_its_own(engine: str) -> None:
    written = {part.lstrip("-") for part in argv(engine) if part.startswith("--")}
    free = {"parallel", "kv-unified", "jinja", "ctx-size"}  # defaults that a profile may overrule
    assert written - free <= ENGINE_TRAITS[engine].owned_args


@pytest.mark.parametrize("engine", sorted(ADAPTERS))
def test_the_engine_listens_on_the_node_address_and_its_port_only(engine: str) -> None:
    line = argv(engine)
    assert value(line, "--host") == "10.0.0.5" and value(line, "--port") == "20001"


def test_llama_server_is_started_with_what_was_found() -> None:
    assert argv()[0] == "/opt/llama/llama-server"
    assert argv(install=WHEEL)[:4] == ("/venv/bin/python", "-P", "-m", "llmgw.entry.llamacpp_wheel")
    assert argv(install=EngineInstall("llama.cpp"))[0] == "llama-server"
    for flag in ("--metrics", "--jinja"):
        assert flag in argv()


def test_slots_and_context_are_said_and_never_left_to_a_default() -> None:
    usual = argv(context_length=4096)
    assert value(usual, "--parallel") == str(SLOTS)
    assert "--kv-unified" in usual and value(usual, "--ctx-size") == "4096"
    own = argv(context_length=4096, args={"parallel": 3})
    assert value(own, "--ctx-size") == "12288" and "--kv-unified" not in own
    shared = argv(context_length=4096, args={"np": 3, "kv-unified": True})
    assert value(shared, "--ctx-size") == "4096"
    written = argv(context_length=4096, args={"ctx-size": 1000, "parallel": 2})
    assert value(written, "--ctx-size") == "1000"
    assert value(argv(), "--ctx-size") is None  # the model's own


def test_a_profile_may_switch_the_template_engine_off() -> None:
    assert "--no-jinja" in argv(args={"jinja": False})
    assert "--jinja" not in argv(args={"jinja": False})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shard_count": 2}, "one node"),
        ({"tensor_parallel": 2}, "tensor_parallel"),
        ({"model": "a,b"}, "comma"),
    ],
)
def test_llama_cpp_refuses_shapes_it_cannot_have(changes: dict[str, object], words: str) -> None:
    refused = LlamaCpp().refuse(launch("llama.cpp", **changes))
    assert refused is not None and refused.code is Failure.BAD_PROFILE and words in refused.text


def test_the_command_lines_are_accepted_by_the_parsers_they_are_for() -> None:
    args = {"threads": 2, "batch_size": 256, "ub": 64, "fa": "auto", "ngl": 0, "cache-prompt": False}
    wheel = argv(install=WHEEL, args=args, context_length=2048)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        llamacpp_wheel.parser().parse_args(list(wheel[4:]))
    sim = argv("sim", args={"decode_rate": 10, "oom": False}, context_length=64)
    simengine.parser().parse_args(list(sim[4:]))
    assert said.getvalue() == ""


# Every option of llama-server b10434 that an adapter writes by itself, from its help.
LLAMA_SERVER = (
    "-m,    --model FNAME",
    "-a,    --alias STRING",
    "--host HOST",
    "--port PORT",
    "-c,    --ctx-size N",
    "-np,   --parallel N",
    "-kvu,  --kv-unified, -no-kvu, --no-kv-unified",
    "--metrics",
    "--jinja, --no-jinja",
)


def test_what_is_written_exists_in_llama_server() -> None:
    known = {option for line in LLAMA_SERVER for option in re.findall(r"--[a-z-]+", line)}
    assert {part for part in argv(context_length=1) if part.startswith("--")} <= known


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("E srv start: couldn't bind HTTP server socket, hostname: x, port: 1", Failure.PORT_BUSY, "taken"),
        ("E gguf_init_from_reader: invalid magic characters: 'hell'", Failure.WEIGHTS_BAD, "'hell'"),
        (
            "E llama_model_load: error loading model: tensor 'x' data is not within the file bounds",
            Failure.WEIGHTS_BAD,
            "damaged",
        ),
        ("ggml_cuda: cudaMalloc failed: out of memory", Failure.OUT_OF_MEMORY, "lower"),
        (
            "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9",
            Failure.OUT_OF_MEMORY,
            "",
        ),
        ("libgomp.so.1: cannot open shared object file", Failure.ENGINE_NOT_INSTALLED, "libgomp.so.1"),
        ("error: invalid argument: --bogus", Failure.BAD_PROFILE, "--bogus"),
        ("E llama_model_load: unknown model architecture: 'new'", Failure.WEIGHTS_BAD, "'new'"),
    ],
)
def test_llama_cpp_is_understood_by_its_last_words(line: str, code: Failure, words: str) -> None:
    explained = LlamaCpp().explain_exit(Exit(1, ("I something before", line, "E exiting")))
    assert explained.code is code and words in explained.text
    assert line in explained.log_tail


@pytest.mark.parametrize(
    ("status", "words"), [(0, "status 0"), (3, "status 3"), (-9, "SIGKILL"), (-4, "AVX2"), (None, "unknown")]
)
def test_any_other_exit_is_told_by_its_status(status: int | None, words: str) -> None:
    explained = Sim().explain_exit(Exit(status, ("hello",)))
    assert explained.code is Failure.ENGINE_EXITED and words in explained.text
