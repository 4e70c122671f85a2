"""An engine behind llama-server's command line that does what a control file says; run as a program.

The control file is named after the model, in the folder given as the first argument, and holds one word:
`serve` (also when there is no file), `exit` (status 0 before it serves), `hang` (never serves, ignores
TERM), `port` (a child in a session of its own keeps the port, the engine itself crashes), `orphan` (a
child in a session of its own outlives the crash), `crash` (status 0 once it has served for a second).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOLD = "import socket, sys, time; held = socket.socket(fileno=int(sys.argv[1])); time.sleep(1000)"


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    """Health, the model's name, and one word of chat."""

    def do_GET(self) -> None:
        self._answer({"status": "ok", "data": [{"id": option("--alias")}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "fine"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer({"object": "chat.completion", "model": option("--alias"), "choices": [choice]})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


def leave_with_port() -> None:
    held = socket.create_server((option("--host"), int(option("--port"))))
    command = [sys.executable, "-c", HOLD, str(held.fileno())]
    subprocess.Popen(command, pass_fds=(held.fileno(),), start_new_session=True)
    sys.exit("the engine is gone, its child keeps the port")


def main() -> None:
    control = Path(sys.argv[1]) / option("--alias")
    behaviour = control.read_text().strip() if control.exists() else "serve"
    print("behaves:", behaviour, flush=True)
    match behaviour:
        case "exit":
            sys.exit(0)
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        case "port":
            leave_with_port()
        case "orphan":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            sys.exit("the engine is gone, its child is not")
        case "crash":
            threading.Timer(1.0, lambda: os._exit(0)).start()
        case _:
            pass
    ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
