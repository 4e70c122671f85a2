"""The operator's client against a real admin listener: what it asks, prints and exits with."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmgw.core.inventory import Mark
from llmgw.ctl.client import Target
from llmgw.ctl.command import LATER, VERBS, Surroundings, run
from llmgw.ctl.table import Look
from tests.ctl.conftest import Running
from tests.web.stub import EMPTY, TOKEN, large_fleet

Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(running: Running, capsys: pytest.CaptureFixture[str]) -> Ran:
    """Run a command line against the stub; exit code, stdout, stderr."""

    def call(*argv: str, width: int | None = None) -> tuple[int, str, str]:
        target = Target.parse(running.url, TOKEN)
        code = run(argv, Surroundings(Look(width), found=(target,), looked_in=("/data",)))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def outcome(argv: Sequence[str], capsys: pytest.CaptureFixture[str], **around: Any) -> tuple[int, str, str]:
    """The same with surroundings of one's own; a usage error of argparse is its exit code."""
    try:
        code = run(argv, Surroundings(Look(), **around))
    except SystemExit as exit_:
        assert isinstance(exit_.code, int)
        code = exit_.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ---------------------------------------------------------------- what is printed


def test_status_is_one_screen_with_every_problem(ctl: Ran) -> None:
    code, out, err = ctl("status")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "llmgw 0.1.0, cluster c0ffee12, leading (term 1), revision 17"
    for line in (
        "models    2 of 5 ready",
        "replicas  2 ready, 1 starting, 1 failed",
        "nodes     3 ready, 1 lost",
        "GPUs      h100  ###########.........  9 of 16 used, 2 unhealthy",
        "database  ok",
        "! node gpu-03 is lost: not heard for 1h6m",
    ):
        assert line in out.splitlines()


def test_nodes_show_the_unknown_as_a_dash_and_reasons_beneath(ctl: Ran) -> None:
    lines = ctl("nodes")[1].splitlines()
    lost = next(line for line in lines if line.startswith("gpu-03"))
    assert lost.split() == ["gpu-03", "lost", "-", "-", "-", "0", "-", "-", "1h6m", "-"]
    assert lines[lines.index(lost) + 1] == "    not heard for 1h6m: its agent is not connected"
    cordoned = next(line for line in lines if line.startswith("gpu-02"))
    assert "cordoned" in cordoned
    assert "2 of 8 h100, 2 unhealthy" in cordoned
    assert lines[-1] == "4 nodes: 2 ready, 1 cordoned (gpu-02), 1 lost (gpu-03)"


def test_four_hundred_nodes_end_with_who_needs_a_look(ctl: Ran, running: Running) -> None:
    running.admin.fleet = large_fleet(400)
    lines = ctl("nodes", width=140)[1].splitlines()
    assert len(lines) == 1 + 400 + 2
    assert lines[-1].startswith("400 nodes: 390 ready, 10 cordoned (gpu-0007, gpu-0047, ")
    assert lines[-1].endswith(" and 5 more)")
    assert max(map(len, lines)) <= 140


def test_replicas_show_progress_errors_and_log_beneath(ctl: Ran) -> None:
    out = ctl("replicas")[1]
    assert "    fetching: 12.4 GB of 15.2 GB, 3m left\n" in out
    assert "    engine_exited: llama-server ended with status 1 after 0.4 s\n" in out
    assert "    | tensor 'x' has wrong shape\n" in out
    assert "ready (stale)" in out
    assert "\x1b" not in out


def test_models_say_why_not_and_when_again(ctl: Ran) -> None:
    out = ctl("models")[1]
    assert "has 1 free of 8: stop qwen3-8b-1a2b3c4d or add a node" in out
    assert "engine_exited: status 1 (next try in 42s)" in out
    assert "sim (simulated)" in out


def test_an_explanation_lists_verdicts_per_profile(ctl: Ran) -> None:
    code, out, _ = ctl("explain-placement", "org/big-model:70b")
    assert code == 0
    assert out.startswith("org/big-model:70b: runs on gpu-01")
    assert "profile cpu: fits nowhere" in out
    assert "needs a card of class h100, has none" in out


def test_events_have_the_newest_last(ctl: Ran) -> None:
    lines = ctl("events")[1].splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["adopted", "lost", "failed", "placed"]
    assert len(ctl("events", "-n", "1", "--model", "broken")[1].splitlines()) == 2


def test_an_empty_installation_says_what_to_do(ctl: Ran, running: Running) -> None:
    running.admin.fleet = EMPTY
    assert ctl("nodes")[1] == "no node has joined: start `llmgw agent` on one\n"
    assert "models:" in ctl("models")[1]
    assert "llmgw ctl models" in ctl("replicas")[1]
    assert "routers   none connected" in ctl("status")[1]


def test_a_node_is_cordoned_and_freed_with_a_reason(ctl: Ran, running: Running) -> None:
    code, out, _ = ctl("cordon", "cpu-01", "--reason", "new disk")
    assert code == 0
    assert "cordoned" in out
    assert ctl("uncordon", "cpu-01")[0] == 0
    marks = [(node, mark.mark, mark.reason) for node, mark in running.admin.marks]
    assert marks == [("cpu-01", Mark.CORDONED, "new disk"), ("cpu-01", Mark.READY, "")]


def test_log_lines_are_printed_without_control_characters(ctl: Ran, running: Running) -> None:
    running.admin.log_lines = ("\x1b[31mred\x1b[0m", "bell\x07")
    code, out, _ = ctl("logs", "smollm2-0badcafe", "-n", "5", "--rank", "1")
    assert (code, out) == (0, "red\nbell\\x07\n")
    assert running.admin.logs_asked == [("smollm2-0badcafe", 1, 5, False)]


# ---------------------------------------------------------------- for programs


@pytest.mark.parametrize("verb", ["status", "nodes", "replicas", "models", "routers", "events"])
def test_json_works_on_both_sides_of_the_verb(ctl: Ran, verb: str) -> None:
    before, after = ctl("--json", verb), ctl(verb, "--json")
    assert before == after
    assert before[0] == 0
    json.loads(before[1])


def test_replicas_as_json_have_the_fixed_fields(ctl: Ran) -> None:
    rows = json.loads(ctl("replicas", "--json")[1])
    assert {"id", "model", "profile", "state", "reason", "url", "stale", "shards"} <= set(rows[0])
    assert {"rank", "node", "pid", "phase", "progress"} <= set(rows[0]["shards"][0])
    assert rows[3]["stale"] is None


def test_logs_as_json_are_a_list_of_lines(ctl: Ran) -> None:
    assert json.loads(ctl("logs", "smollm2-0badcafe", "--json")[1]) == ["loading model", "listening"]


def test_a_refusal_as_json_is_the_servers_problem(ctl: Ran) -> None:
    code, out, err = ctl("explain-placement", "nope", "--json")
    assert code == 1
    assert json.loads(out)["error"]["code"] == "unknown_model"
    assert err == "llmgw ctl: there is no model 'nope'\n"


# ---------------------------------------------------------------- exit codes


def test_what_the_server_refuses_is_exit_code_1(ctl: Ran) -> None:
    for argv in (("logs", "nope"), ("explain-placement", "nope"), ("cordon", "nope"), ("events", "-n", "0")):
        code, out, err = ctl(*argv)
        assert (code, out) == (1, "")
        assert err.startswith("llmgw ctl: ")
        assert err.count("\n") == 1


def test_a_wrong_token_is_refused_as_such(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("wrong\n")
    argv = ("status", "--server", running.url, "--token-file", str(tmp_path / "token"))
    code, _, err = outcome(argv, capsys)
    assert code == 1
    assert "is not this server's admin token" in err


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("nodez",),
        ("nodes", "extra"),
        ("logs",),
        ("logs", "x", "-n", "many"),
        ("status", "--colour"),
        ("status", "--server"),
        ("status", "--server", "ftp://x"),
        ("status", "--server", "http://x/path"),
        ("status", "--server", "http://x:notaport"),
    ],
)
def test_wrong_use_is_exit_code_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    found = (Target.parse("127.0.0.1:1", TOKEN),)
    code, out, err = outcome(argv, capsys, found=found)
    assert (code, out) == (2, "")
    assert "llmgw ctl" in err


def test_a_wrong_verb_names_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean nodes or models?" in outcome(("nodez",), capsys)[2]


@pytest.mark.parametrize("verb", ["drain", "scale", "model", "doctor", "top"])
def test_verbs_of_later_versions_say_so(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = outcome((verb, "x"), capsys)
    assert (code, err) == (2, f"llmgw ctl: {verb}: not available in this version\n")
    assert not LATER & set(VERBS)


def test_no_server_that_answers_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    found = (Target.parse("127.0.0.1:1", TOKEN),)
    code, out, err = outcome(("status",), capsys, found=found)
    assert (code, out, err) == (3, "", "llmgw ctl: http://127.0.0.1:1: Connection refused\n")


def test_no_server_known_is_exit_code_3_and_says_where_it_looked(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = outcome(("status",), capsys, looked_in=("/home/x", "/var/lib/llmgw"))
    assert code == 3
    assert "/home/x, /var/lib/llmgw" in err
    assert "--server URL and --token-file FILE" in err


def test_a_token_of_somebody_else_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    around = {"looked_in": ("/a",), "unreadable": ("/a/admin-token",)}
    assert "/a/admin-token may be read by its owner only" in outcome(("status",), capsys, **around)[2]


# ---------------------------------------------------------------- which server, which token


def test_servers_are_tried_in_turn(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    argv = (
        "--server",
        "127.0.0.1:1",
        "routers",
        "--server",
        running.url,
        "--token-file",
        str(tmp_path / "token"),
    )
    code, out, _ = outcome(argv, capsys)
    assert code == 0
    assert "r-1" in out


def test_the_environment_names_server_and_token(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    around = {"servers": (running.url,), "token_file": str(tmp_path / "token")}
    assert outcome(("routers",), capsys, **around)[0] == 0


def test_a_token_of_this_machine_serves_its_loopback_but_is_sent_nowhere_else(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    found = (Target.parse("127.0.0.1:1", "other"), Target.parse(running.url, TOKEN))
    assert outcome(("routers", "--server", f"localhost:{running.port}"), capsys, found=found)[0] == 0
    code, _, err = outcome(("routers", "--server", "http://10.0.0.1:8081"), capsys, found=found)
    assert code == 2
    assert "http://10.0.0.1:8081: needs --token-file FILE" in err


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", "schlüssel".encode()])
def test_a_token_file_with_anything_else_in_it_is_refused(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_bytes(content)
    code, _, err = outcome(("status", "--token-file", str(tmp_path / "token")), capsys)
    assert code == 2
    assert str(tmp_path / "token") in err


def test_a_missing_token_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = outcome(("status", "--token-file", "/nowhere/token"), capsys)
    assert (code, err) == (2, "llmgw ctl: token file /nowhere/token: No such file or directory\n")


# ---------------------------------------------------------------- servers that are not ours


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers what its class says, to anything."""

    answer: bytes = b""

    def do_GET(self) -> None:
        self.wfile.write(self.answer)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[tuple[type[Stranger], str]]:
    handler = type("One", (Stranger,), {})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield handler, f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n<html>", 3, "is not llmgw's admin API"),
        (b"SSH-2.0-x\r\n", 3, "SSH"),
        (b"", 3, "without response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", 3, "broke"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"other": 1}', 1, "a version this ctl does not know"),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", 1, "a version this ctl does not know"),
    ],
)
def test_a_stranger_at_the_address_is_one_line(
    stranger: tuple[type[Stranger], str],
    answer: bytes,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler, address = stranger
    handler.answer = answer
    ended, out, err = outcome(("status",), capsys, found=(Target.parse(address, TOKEN),))
    assert (ended, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1
