"""Judges `llmgw keys` as a person and as a script use it: through its command line, on a real store."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from llmgw.core import accounts
from llmgw.entry import keys
from llmgw.store import migrations
from llmgw.store.opening import open_database
from llmgw.store.store import SqlStore
from llmgw.wire.watch_v1 import KeyEntry
from tests.conftest import ran_on
from tests.support.postgres import PASSWORD

PROJECT = "acme/research/bot"


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A data folder as `llmgw up` makes it, before the first start; of a PostgreSQL store when asked for."""
    if getattr(request, "param", "sqlite") == "postgresql":
        store = request.getfixturevalue("postgres_url")
    else:
        ran_on(request, "sqlite")
        store = f"sqlite:///{tmp_path / 'llmgw.db'}"
    (tmp_path / "server.yaml").write_text(f"store: {store}\nmodels: []\n")
    return tmp_path


on_both = pytest.mark.parametrize("data", ["sqlite", "postgresql"], indirect=True)


def store_of(data: Path) -> str:
    """The address in a data folder's server.yaml."""
    return (data / "server.yaml").read_text().splitlines()[0].removeprefix("store: ")


Keys = Callable[..., tuple[int, str, str]]


@pytest.fixture
def llmgw_keys(data: Path, capsys: pytest.CaptureFixture[str]) -> Keys:
    """Runs the command on that folder; exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = keys.main(["--data", str(data), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def process(*words: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "llmgw", "keys", *words]
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=False, timeout=30)


def as_json(said: tuple[int, str, str]) -> Any:
    code, out, err = said
    assert (code, err) == (0, "")
    return json.loads(out)


def entries(data: Path) -> tuple[int, tuple[KeyEntry, ...]]:
    """What a server would read: the revision and the keys."""

    async def read() -> tuple[int, tuple[KeyEntry, ...]]:
        database = open_database(store_of(data))
        store = SqlStore(database, lambda holder: False)
        found = await store.key_revision(), await store.keys()
        await database.aclose()
        return found

    return asyncio.run(read())


def tree(llmgw_keys: Keys) -> None:
    for words in (("org", "acme"), ("team", "acme/research"), ("project", PROJECT), ("user", "acme/ann")):
        assert llmgw_keys(words[0], "create", words[1])[0] == 0


# ---------------------------------------------------------------- through the real process


@on_both
def test_the_published_command_makes_a_key_that_works(data: Path) -> None:
    config = str(data / "server.yaml")
    for level, path in (("org", "acme"), ("team", "acme/research"), ("project", PROJECT)):
        assert process("--config", config, level, "create", path).returncode == 0
    words = ["key", "create", "--project", PROJECT, "--name", "ci", "--models", "qwen*", "--expires", "90d"]
    said = process("--config", config, *words, "--json")
    assert said.returncode == 0, said.stderr
    made = json.loads(said.stdout)
    parsed = accounts.parse_key(made["key"])
    assert parsed is not None
    _, (entry,) = entries(data)
    assert (entry.key_id, entry.public_id, entry.models) == (made["id"], parsed[0], ("qwen*",))
    assert accounts.secret_matches(parsed[1], entry.secret_sha256)
    assert made["project"] == PROJECT
    assert made["expires_at"] == pytest.approx(made["created_at"] + 90 * 86400, abs=1)


def test_the_key_alone_is_on_stdout_so_that_a_shell_can_keep_it(data: Path) -> None:
    said = process("--data", str(data), "key", "create", "--name", "ci")
    assert accounts.parse_key(said.stdout.removesuffix("\n")) is not None
    assert "not shown again" in said.stderr


def test_a_mistake_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    said = process("--data", str(tmp_path / "none"), "key", "list")
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr.splitlines() == [
        f"llmgw: {tmp_path / 'none' / 'server.yaml'}: cannot be read: No such file or directory"
    ]


def test_hash_reads_a_key_and_prints_its_line() -> None:
    text = "sk-llmgw-abcdefgh2345-" + "x" * 43
    said = process("hash", given=f"{text}\n")
    assert said.returncode == 0
    assert accounts.parse_hash_line(said.stdout.strip()) == ("abcdefgh2345", accounts.hash_secret("x" * 43))


def test_hash_of_something_else_is_refused_without_printing_it() -> None:
    said = process("hash", given="sk-proj-secret\n")
    assert said.returncode == 1
    assert "sk-llmgw-" in said.stderr
    assert "secret" not in said.stderr


# ---------------------------------------------------------------- keys


@on_both
def test_a_key_without_a_project_belongs_to_the_default_one(llmgw_keys: Keys) -> None:
    made = as_json(llmgw_keys("--json", "key", "create", "--name", "ci"))
    assert made["project"] == "default/default/default"


def test_json_may_stand_before_and_after_the_verb(llmgw_keys: Keys) -> None:
    assert as_json(llmgw_keys("--json", "key", "list")) == []
    assert as_json(llmgw_keys("key", "--json", "list")) == []
    assert as_json(llmgw_keys("key", "list", "--json")) == []


@on_both
def test_a_list_shows_keys_but_no_secret(llmgw_keys: Keys) -> None:
    made = as_json(llmgw_keys("key", "create", "--name", "ci", "--json"))
    for words in (["key", "list"], ["key", "list", "--json"]):
        code, out, _ = llmgw_keys(*words)
        assert code == 0
        assert made["id"] in out
        assert made["public_id"] in out
        assert made["key"].rpartition("-")[2] not in out


@on_both
def test_a_key_of_a_user_says_so(llmgw_keys: Keys) -> None:
    tree(llmgw_keys)
    words = ["key", "create", "--name", "ci", "--project", PROJECT, "--user", "acme/ann", "--json"]
    assert as_json(llmgw_keys(*words))["user"] == "acme/ann"
    _, out, _ = llmgw_keys("key", "list", "--project", PROJECT)
    assert "acme/ann" in out


@on_both
def test_a_disabled_key_is_told_to_the_server_by_the_revision(llmgw_keys: Keys, data: Path) -> None:
    made = as_json(llmgw_keys("key", "create", "--name", "ci", "--json"))
    revision, (entry,) = entries(data)
    assert not entry.disabled
    (changed,) = as_json(llmgw_keys("key", "disable", made["id"], "--json"))
    assert changed["disabled"] is True
    after, (entry,) = entries(data)
    assert entry.disabled
    assert after > revision


@on_both
def test_a_deleted_key_is_gone(llmgw_keys: Keys, data: Path) -> None:
    as_json(llmgw_keys("key", "create", "--name", "ci", "--json"))
    code, out, _ = llmgw_keys("key", "delete", "ci")
    assert (code, "deleted" in out) == (0, True)
    assert entries(data)[1] == ()


@on_both
def test_several_keys_are_changed_all_or_none(llmgw_keys: Keys, data: Path) -> None:
    as_json(llmgw_keys("key", "create", "--name", "ci", "--json"))
    code, _, err = llmgw_keys("key", "disable", "ci", "nosuch")
    assert (code, "no key 'nosuch'" in err) == (1, True)
    assert [entry.disabled for entry in entries(data)[1]] == [False]


@on_both
def test_states_are_named_in_the_list(llmgw_keys: Keys) -> None:
    for name, more in (("on", []), ("off", []), ("old", ["--expires", "1ms"])):
        assert llmgw_keys("key", "create", "--name", name, *more)[0] == 0
    assert llmgw_keys("key", "disable", "off")[0] == 0
    _, out, _ = llmgw_keys("key", "list")
    states = {line.split()[1]: line.split()[-1] for line in out.splitlines()[1:]}
    assert states == {"on": "active", "off": "disabled", "old": "expired"}


def test_a_server_that_cannot_be_reached_is_one_line_without_the_password(tmp_path: Path) -> None:
    config = tmp_path / "server.yaml"
    config.write_text(f"store: postgresql://llmgw:{quote(PASSWORD, safe='')}@127.0.0.1:1/llmgw\n")
    said = process("--config", str(config), "key", "list")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        "llmgw: postgresql://llmgw@127.0.0.1:1/llmgw: cannot connect: Connection refused\n"
    )


# ---------------------------------------------------------------- groups


@on_both
def test_the_tree_is_made_and_listed(llmgw_keys: Keys) -> None:
    tree(llmgw_keys)
    listed = {level: as_json(llmgw_keys(level, "list", "--json")) for level in keys.LEVELS[:4]}
    assert {level: [group["path"] for group in found] for level, found in listed.items()} == {
        "org": ["acme", "default"],
        "team": ["acme/research", "default/default"],
        "project": [PROJECT, "default/default/default"],
        "user": ["acme/ann"],
    }
    _, out, _ = llmgw_keys("project", "list")
    assert PROJECT in out


@on_both
def test_what_is_created_is_printed_as_json(llmgw_keys: Keys) -> None:
    made = as_json(llmgw_keys("org", "create", "acme", "--json"))
    assert (made["name"], made["path"], made["level"]) == ("acme", "acme", "org")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["team", "create", "none/x"], "there is no org none"),
        (["team", "create", "x"], "'x' is not a team; write ORG/TEAM"),
        (["org", "create", "default"], "org default exists already"),
        (["org", "create", "ACME"], "'ACME' cannot be the name"),
        (["key", "create", "--name", "ci", "--project", "a/b/c"], "there is no project a/b/c"),
        (["key", "create", "--name", "ci", "--expires", "soon"], "'soon' is not a duration"),
        (["key", "create", "--name", "ci", "--models", ""], "not a list of models"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(llmgw_keys: Keys, words: Sequence[str], said: str) -> None:
    code, out, err = llmgw_keys(*words)
    assert (code, out) == (1, "")
    assert said in err
    assert err.startswith("llmgw: ")
    assert err.count("\n") == 1


# ---------------------------------------------------------------- not yet, and wrong use


@pytest.mark.parametrize("level", keys.LEVELS)
@pytest.mark.parametrize("verb", ["update", "move", "rotate"])
def test_a_verb_that_does_not_exist_yet_is_named_and_not_done(
    llmgw_keys: Keys, data: Path, level: str, verb: str
) -> None:
    code, out, err = llmgw_keys(level, verb, "acme", "--rpm", "3")
    assert (code, out) == (2, "")
    assert f"{level} {verb} is not available in this version" in err
    assert not (data / "llmgw.db").exists()


@pytest.mark.parametrize("verb", ["disable", "delete"])
def test_groups_cannot_be_disabled_or_deleted_yet(llmgw_keys: Keys, verb: str) -> None:
    code, _, err = llmgw_keys("team", verb, "acme/research")
    assert (code, f"team {verb} is not available in this version" in err) == (2, True)


@pytest.mark.parametrize("limit", keys._LIMITS)
@pytest.mark.parametrize("words", [("key", "create", "--name", "ci"), ("org", "create", "acme")])
def test_a_limit_is_refused_rather_than_accepted_and_ignored(
    llmgw_keys: Keys, data: Path, limit: str, words: Sequence[str]
) -> None:
    code, _, err = llmgw_keys(*words, f"--{limit}", "60")
    assert (code, f"limits (--{limit}) are not available in this version" in err) == (2, True)
    assert not (data / "llmgw.db").exists()


@pytest.mark.parametrize(
    "words",
    [[], ["key"], ["keys"], ["key", "create"], ["key", "disable"], ["org", "create"], ["key", "list", "--x"]],
)
def test_wrong_use_is_exit_code_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        keys.main(words)
    assert ended.value.code == 2
    assert "usage: llmgw keys" in capsys.readouterr().err


# ---------------------------------------------------------------- the store it works on


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: []\n", "names no store"),
        ("store: 5\n", "names no store"),
        ("[]\n", "names no store"),
        ("store: [\n", "server.yaml:"),
        ("store: postgresql://db/llmgw\n", "names no user"),
        ("store: sqlite:///llmgw.db\n", "not an absolute path"),
        ("store: sqlite:////nowhere/llmgw.db\n", "cannot open /nowhere/llmgw.db: No such file"),
    ],
)
def test_a_store_that_cannot_be_used_is_said_in_one_line(
    data: Path, llmgw_keys: Keys, text: str, said: str
) -> None:
    (data / "server.yaml").write_text(text)
    code, _, err = llmgw_keys("key", "list")
    assert code == 1
    assert said in err
    assert err.count("\n") == 1


def test_config_and_data_exclude_each_other_on_both_sides_of_the_verb(data: Path, llmgw_keys: Keys) -> None:
    code, _, err = llmgw_keys("key", "list", "--config", str(data / "server.yaml"))
    assert (code, "not both" in err) == (1, True)


def test_without_a_word_the_data_folder_of_up_is_used(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    (data / "llmgw").mkdir()
    (data / "server.yaml").rename(data / "llmgw" / "server.yaml")
    assert keys.main(["key", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@on_both
def test_a_database_of_an_older_layout_is_left_to_its_server(
    llmgw_keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert llmgw_keys("key", "list")[0] == 0
    monkeypatch.setattr(migrations, "HEAD", "0002")
    code, _, err = llmgw_keys("key", "list")
    assert (code, "llmgw db upgrade" in err) == (1, True)


def test_a_locked_database_is_one_line(llmgw_keys: Keys, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert llmgw_keys("key", "list")[0] == 0
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_THE_LOCK, str(data / "llmgw.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    code, _, err = llmgw_keys("key", "create", "--name", "ci")
    holder.communicate()
    assert (code, err) == (1, f"llmgw: {data / 'llmgw.db'}: database is locked\n")


HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@on_both
def test_names_of_others_choosing_reach_the_terminal_as_words(llmgw_keys: Keys, data: Path) -> None:
    made = as_json(llmgw_keys("key", "create", "--name", "ci", "--json"))

    async def rename() -> None:
        from sqlalchemy import text

        database = open_database(store_of(data))
        hostile = text("UPDATE api_keys SET name = :name")
        await database.write(lambda c: c.execute(hostile, {"name": "\x1b[2Jred [bold]x[/]"}))
        await database.aclose()

    asyncio.run(rename())
    for words in (("key", "list"), ("key", "disable", made["id"])):
        _, out, _ = llmgw_keys(*words)
        assert "\x1b[2J" not in out
        assert "red [bold]x[/]" in out
