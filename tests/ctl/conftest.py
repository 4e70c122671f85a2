"""A real admin listener over a stub, in a thread, as a client would meet it."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import uvicorn

from llmgw.web.app import build_admin_app
from tests.web.stub import BUSY, StubAdmin, options


class Running:
    """The listener's address and what answers behind it."""

    def __init__(self, port: int, admin: StubAdmin, stop: Callable[[], None]) -> None:
        self.port = port
        self.stop = stop
        self.url = f"http://127.0.0.1:{port}"
        self.admin = admin


@pytest.fixture
def running() -> Iterator[Running]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    admin = StubAdmin(BUSY)
    app = build_admin_app(admin, options(listen=f"127.0.0.1:{port}"))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join(10)
        listening.close()

    yield Running(port, admin, stop)
    stop()
