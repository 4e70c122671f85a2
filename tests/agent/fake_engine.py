"""An engine that behaves as its environment says, behind llama-server's command line; run as a program.

BEHAVE holds words: `deaf` ignores TERM, `orphan` starts a child in a session of its own and writes its pid
to ORPHAN_FILE, `silent` stops answering health questions once it was asked SILENT_AFTER times, `stranger`
serves another model's name, `clean` exits 0 by itself after a second, `slow` never becomes healthy.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BEHAVE = os.environ.get("BEHAVE", "").split()
ASKED: list[str] = []


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        ASKED.append(self.path)
        if "slow" in BEHAVE or ("silent" in BEHAVE and len(ASKED) > int(os.environ["SILENT_AFTER"])):
            self.send_error(503)
            return
        name = "another" if "stranger" in BEHAVE else option("--alias")
        body = json.dumps({"data": [{"id": name}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        print(format % args, flush=True)


def main() -> None:
    print("fake engine", BEHAVE, flush=True)
    if "deaf" in BEHAVE:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "orphan" in BEHAVE:
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
        Path(os.environ["ORPHAN_FILE"]).write_text(str(child.pid))
    if "clean" in BEHAVE:
        threading.Timer(1.0, lambda: os._exit(0)).start()
    ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
