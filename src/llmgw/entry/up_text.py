"""Decides what `llmgw up` prints once it serves: where, with which key, and a request to paste.

Laws: what is printed works when pasted into a shell on this machine; the key itself is printed at the
first run only.
"""

import json
import shlex
from pathlib import Path

import msgspec

HELLO = "Say hello in one sentence."
ANSWER_MAX = 100  # tokens: a very small model may not find an end by itself


class Serving(msgspec.Struct, frozen=True):
    """What is known once it serves."""

    port: int
    host: str  # as configured
    others: tuple[str, ...]  # addresses of this machine that other machines may use
    admin: str
    models: tuple[str, ...]
    data: Path
    key: str | None  # when it was made by this run
    found_by_ctl: bool = True  # the data folder is the one `llmgw ctl` looks in
    program: str = "llmgw"  # this program, as a shell finds it


def local_url(serving: Serving) -> str:
    """The client listener as this machine reaches it."""
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(serving.host, serving.host)
    return f"http://{host}:{serving.port}"


def welcome(serving: Serving) -> str:
    """All a newcomer needs, to paste."""
    url, key_file = local_url(serving), serving.data / "first-key"
    shown = (serving.key or "").strip()
    rows = [
        ("Address", f"{url}/v1"),
        *(("", f"http://{other}:{serving.port}/v1 from other machines") for other in serving.others),
        ("API key", f"{shown} (kept in {key_file}; not shown again)" if shown else f"in {key_file}"),
        ("Chat", f"{url}/chat"),
        ("Dashboard", f"http://{serving.admin}/ (token in {serving.data / 'admin-token'})"),
        ("Logs", str(serving.data / "logs")),
        ("Status", _ctl(serving)),
    ]
    lines = ["", f"llmgw serves {', '.join(serving.models) or 'no model yet'}", ""]
    lines += [f"  {name:<9}  {what}" for name, what in rows]
    if serving.models:
        model = serving.models[0]
        lines += ["", "Ask it:", "", _curl(url, model, key_file)]
        lines += ["", "Or in Python, after `pip install openai`:", "", *_python(url, model, key_file)]
    lines += ["", "Ctrl-C stops it.", ""]
    return "\n".join(lines)


def _ctl(serving: Serving) -> str:
    """The command that says how it is, from another shell."""
    if serving.found_by_ctl:
        return f"{serving.program} ctl status"
    token_file = shlex.quote(str(serving.data / "admin-token"))
    return f"{serving.program} ctl --server {serving.admin} --token-file {token_file} status"


def _curl(url: str, model: str, key_file: Path) -> str:
    messages = [{"role": "user", "content": HELLO}]
    body = json.dumps({"model": model, "max_tokens": ANSWER_MAX, "messages": messages})
    return (
        f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer $(cat {shlex.quote(str(key_file))})" -d {shlex.quote(body)}'
    )


def _python(url: str, model: str, key_file: Path) -> list[str]:
    read_key = f"open({json.dumps(str(key_file))}).read().strip()"
    ask = f"model={json.dumps(model)}, messages=messages, max_tokens={ANSWER_MAX}"
    return [
        "from openai import OpenAI",
        f"client = OpenAI(base_url={json.dumps(f'{url}/v1')}, api_key={read_key})",
        f'messages = [{{"role": "user", "content": {json.dumps(HELLO)}}}]',
        f"answer = client.chat.completions.create({ask})",
        "print(answer.choices[0].message.content)",
    ]
