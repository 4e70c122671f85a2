"""Drives a real Chromium through its DevTools protocol: pages, keys, what is shown, pictures.

Laws: one browser a test, with a profile of its own that is removed; it waits for what it expects and
never for time; nothing but `websockets`, which the project has anyway.
"""

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from llmgw.aio.tasks import Tasks
from tests.conftest import tool

PATIENCE_S = 20.0

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--mute-audio", "--remote-debugging-port=0", "--window-size=1100,800",
)  # fmt: skip
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40}


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []  # what the page's console complained of

    async def listen(self) -> None:
        """Take messages until the browser goes; to be run as a task."""
        with contextlib.suppress(ConnectionClosed):
            async for raw in self._socket:
                self._hear(json.loads(raw))

    def _hear(self, message: dict[str, Any]) -> None:
        answer = self._waiting.pop(message.get("id", 0), None)
        if answer is not None and not answer.done():
            answer.set_result(message)
        elif message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(message["params"]["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["level"] == "error":
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        message = {"id": number, "sessionId": self._session, "method": method, "params": params}
        await self._socket.send(json.dumps(message))
        async with asyncio.timeout(PATIENCE_S):
            result = await answer
        assert "error" not in result, (method, result["error"])
        found: dict[str, Any] = result["result"]
        return found

    async def go(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page."""
        result = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true on the page, looking at every frame."""
        watch = (
            "new Promise((done) => { const look = () => { let ok = false;"
            f" try {{ ok = Boolean({expression}); }} catch {{ ok = false; }}"
            " if (ok) done(true); else setTimeout(look, 15); }; look(); })"
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.call("Runtime.evaluate", expression=watch, awaitPromise=True)
        except (TimeoutError, AssertionError) as late:
            shown = await self.evaluate("document.body.innerText")
            raise AssertionError(f"never true: {expression}; the page shows:\n{shown}") from late

    async def type(self, text: str) -> None:
        """Put text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        common = {
            "key": key,
            "code": key,
            "windowsVirtualKeyCode": _KEYS[key],
            "modifiers": 8 if shift else 0,
        }
        await self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def dress(self, *, dark: bool = False, width: int = 1100, height: int = 800) -> None:
        """Set the colour scheme and the size of the window."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self) -> bytes:
        """What is shown, as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@contextlib.asynccontextmanager
async def browser_page(profile: Path) -> AsyncIterator[Page]:
    """A fresh browser with one empty tab. Skips the test where there is no Chromium, fails it in CI."""
    program = tool("chromium", "chromium-browser", "google-chrome")
    process = await asyncio.create_subprocess_exec(
        *(program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        address = await _address(process.stderr)
        async with Tasks() as tasks, connect(address, max_size=None, proxy=None) as socket:
            tasks.start(_drained(process.stderr), name="browser's words")
            page = await _attach(socket)
            tasks.start(page.listen(), name="browser's messages")
            for domain in ("Page", "Runtime", "Log"):
                await page.call(f"{domain}.enable")
            yield page
    finally:
        process.kill()
        await process.wait()


async def _address(words: asyncio.StreamReader) -> str:
    async with asyncio.timeout(PATIENCE_S):
        async for line in words:
            found = line.decode(errors="replace").partition("DevTools listening on ")[2].strip()
            if found:
                return found
    raise AssertionError("the browser ended before it listened")


async def _drained(words: asyncio.StreamReader) -> None:
    while await words.read(65536):
        pass


async def _attach(socket: ClientConnection) -> Page:
    async def ask(number: int, method: str, **params: Any) -> Any:
        await socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(await socket.recv())
            if message.get("id") == number:
                return message["result"]

    targets = (await ask(1, "Target.getTargets"))["targetInfos"]
    tab = next(target["targetId"] for target in targets if target["type"] == "page")
    attached = await ask(2, "Target.attachToTarget", targetId=tab, flatten=True)
    return Page(socket, attached["sessionId"])
