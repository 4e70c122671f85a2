"""What `llmgw up` prints works when pasted."""

import ast
import json
import shlex
from pathlib import Path

import msgspec

from llmgw.entry.up_text import Serving, local_url, welcome

SERVING = Serving(
    port=8080,
    host="0.0.0.0",
    others=("192.0.2.7",),
    admin="127.0.0.1:8081",
    models=("smollm2-135m", "sim"),
    data=Path("/home/x/my data"),
    key="sk-llmgw-abc-def",
)


def lines_after(text: str, heading: str) -> list[str]:
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading)) + 2
    return lines[start : start + lines[start:].index("")]


def test_the_curl_line_is_one_line_a_shell_understands() -> None:
    (curl,) = lines_after(welcome(SERVING), "Ask it:")
    words = shlex.split(curl)
    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1])["model"] == "smollm2-135m"
    assert "Authorization: Bearer $(cat '/home/x/my data/first-key')" in words


def test_the_python_snippet_is_five_lines_of_python() -> None:
    lines = lines_after(welcome(SERVING), "Or in Python")
    assert len(lines) == 5
    ast.parse("\n".join(lines))
    assert '"/home/x/my data/first-key"' in lines[1]


def test_the_key_is_shown_at_the_first_run_only() -> None:
    first = welcome(SERVING)
    assert first.count("sk-llmgw-abc-def") == 1
    later = welcome(msgspec.structs.replace(SERVING, key=None))
    assert "sk-llmgw" not in later
    assert "/home/x/my data/first-key" in later


def test_addresses_are_ones_people_can_use() -> None:
    text = welcome(SERVING)
    assert "0.0.0.0" not in text
    assert "http://192.0.2.7:8080/v1 from other machines" in text
    assert local_url(msgspec.structs.replace(SERVING, host="[::]")) == "http://[::1]:8080"
    assert local_url(msgspec.structs.replace(SERVING, host="10.0.0.1")) == "http://10.0.0.1:8080"


def test_without_a_model_nothing_is_offered_to_paste() -> None:
    text = welcome(msgspec.structs.replace(SERVING, models=()))
    assert "curl" not in text
    assert "no model yet" in text


def test_the_status_command_works_for_any_data_folder() -> None:
    assert "llmgw ctl status" in welcome(SERVING)
    elsewhere = welcome(msgspec.structs.replace(SERVING, found_by_ctl=False))
    assert "llmgw ctl --server 127.0.0.1:8081 --token-file '/home/x/my data/admin-token' status" in elsewhere


def test_the_status_command_names_the_program_as_the_shell_finds_it() -> None:
    text = welcome(msgspec.structs.replace(SERVING, program="/x/.venv/bin/llmgw"))
    assert "  /x/.venv/bin/llmgw ctl status" in text


def test_what_is_pasted_ends_soon_also_with_a_model_that_rambles() -> None:
    text = welcome(SERVING)
    assert '"max_tokens": 100' in text
    assert "max_tokens=100" in text
