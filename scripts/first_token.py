#!/usr/bin/env python3
"""Waits until an llmgw on this machine streams its first token, and prints the token and the seconds.

Usage: first_token.py PORT KEY_FILE [TIMEOUT_S]. Exit 1 when the time is over. Needs only Python itself.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

WAIT_S = 0.05


def first_token(port: int, key: str) -> str:
    """The first piece of text of a streamed answer of the first model. Raises `OSError` or `LookupError`."""
    address = f"http://127.0.0.1:{port}/v1"
    head = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    listing = urllib.request.Request(f"{address}/models", headers=head)
    with urllib.request.urlopen(listing, timeout=5) as answer:
        models = json.load(answer)["data"]
    if not models:
        raise LookupError("no model yet")
    ask = {
        "model": models[0]["id"],
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream": True,
        "max_tokens": 8,
    }
    request = urllib.request.Request(f"{address}/chat/completions", json.dumps(ask).encode(), head)
    with urllib.request.urlopen(request, timeout=120) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                text = choices[0]["delta"].get("content") if choices else None
                if text:
                    return str(text)
    raise LookupError("the stream ended without a token")


def main() -> int:
    """Try until it works or the time is over."""
    port, key_file = int(sys.argv[1]), Path(sys.argv[2])
    timeout = float(sys.argv[3]) if len(sys.argv) > 3 else 600.0
    began = time.monotonic()
    last = "not tried"
    while time.monotonic() - began < timeout:
        try:
            token = first_token(port, key_file.read_text(encoding="utf-8").strip())
        except (OSError, LookupError) as error:
            last = str(error)
            time.sleep(WAIT_S)
        else:
            print(json.dumps({"first_token_s": round(time.monotonic() - began, 2), "token": token}))
            return 0
    print(f"no token within {timeout:.0f} s: {last}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
