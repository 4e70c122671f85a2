"""Decides for every request on the client listener what it is and whether it may be: the one way in.

Laws: every route is in the table below and nowhere else; what is not exempt there needs a key, and
exempt are exactly the landing page, the chat page, the probes and each asset by its full name (G3); the
path that is compared is the one that was received, byte for byte; every answer has an `x-request-id`.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Final
from urllib.parse import unquote

import msgspec

from llmgw.core.refusal import Code, Refuse
from llmgw.gateway.auth import authenticate
from llmgw.gateway.call import JSON, NO_STORE, Call, Caller
from llmgw.gateway.inference import Inference, InferenceMeans
from llmgw.gateway.models_page import ModelsPage
from llmgw.gateway.pages import ASSETS, Pages
from llmgw.gateway.served_routes import RELAYED
from llmgw.gateway.state import Current, Header
from llmgw.ports import Clock, Exchange, RequestHead
from llmgw.wire.errors import error_response
from llmgw.wire.watch_v1 import KeyEntry

OpenHandler = Callable[[Call], Awaitable[None]]
KeyedHandler = Callable[[Call, Caller], Awaitable[None]]


class Access(Enum):
    """Who may use a route."""

    OPEN = "open"
    KEY = "key"


_OPEN: Final = Access.OPEN  # by its own name: looking it up on the enum is a call


class Route(msgspec.Struct, frozen=True):
    """One route. A path that ends in `/*` takes the rest as its argument."""

    path: str
    method: str
    access: Access
    handler: str  # its name in `Handlers`


ROUTES: tuple[Route, ...] = (
    Route("/", "GET", Access.OPEN, "landing"),
    Route("/chat", "GET", Access.OPEN, "chat_page"),
    *(Route(path, "GET", Access.OPEN, "asset") for path in ASSETS),
    Route("/healthz", "GET", Access.OPEN, "healthz"),
    Route("/readyz", "GET", Access.OPEN, "readyz"),
    Route("/v1/models", "GET", Access.KEY, "models"),
    Route("/v1/models/*", "GET", Access.KEY, "model"),
    *(Route(one.path, "POST", Access.KEY, one.path) for one in RELAYED),
)


# The path is not repeated: it may hold a key that was pasted into the wrong place.
NOTHING_HERE = Refuse(Code.NOT_FOUND, "There is nothing at this address; the API begins at /v1.")


class Handlers(msgspec.Struct, frozen=True):
    """What serves the routes, by who may use them."""

    open: Mapping[str, OpenHandler]
    keyed: Mapping[str, KeyedHandler]


class Gateway:
    """The `ExchangeHandler` of the client listener."""

    def __init__(self, handlers: Handlers, current: Current, clock: Clock, draw: random.Random) -> None:
        self._handlers = handlers
        self._current = current
        self._clock = clock
        self._draw = draw
        self._exact = {route.path.encode(): route for route in ROUTES if not route.path.endswith("/*")}
        self._prefixes = tuple(
            (route.path[:-1].encode(), route) for route in ROUTES if route.path.endswith("/*")
        )

    async def __call__(self, exchange: Exchange) -> None:
        """Serve one request."""
        head = exchange.head
        request_id = f"req-{self._draw.getrandbits(96):024x}"
        id_header = (b"x-request-id", request_id.encode())
        path = head.target.partition(b"?")[0]
        route = self._exact.get(path)
        route, argument = self._by_prefix(path) if route is None else (route, route.path)
        call = Call(exchange, request_id, id_header, argument)
        if route is None:
            call.refuse(NOTHING_HERE)
            return
        if head.method != route.method and not (head.method == "HEAD" and route.method == "GET"):
            _refuse_method(call, route)
            return
        if route.access is _OPEN:
            await self._handlers.open[route.handler](call)
            return
        caller = self._caller(head)
        if not isinstance(caller, Caller):
            call.refuse(caller)
            return
        await self._handlers.keyed[route.handler](call, caller)

    def _by_prefix(self, path: bytes) -> tuple[Route | None, str]:
        for prefix, route in self._prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                return route, unquote(path[len(prefix) :].decode("latin-1"), errors="replace")
        return None, ""

    def _caller(self, head: RequestHead) -> Caller | Refuse:
        table = self._current.table
        if table is None:
            # Without a table no key can be judged; that is our trouble and never the client's fault.
            return Refuse(
                Code.NO_ENDPOINT, "The gateway has just started and knows no models yet; try again."
            )
        key = authenticate(head, table, self._clock.now())
        return Caller(key, table) if isinstance(key, KeyEntry) else key


def handlers(means: InferenceMeans, models: ModelsPage, pages: Pages, probes: "Probes") -> Handlers:
    """Every handler under the name its routes use."""
    return Handlers(
        open={
            "landing": pages.landing,
            "chat_page": pages.chat,
            "asset": pages.asset,
            "healthz": probes.healthz,
            "readyz": probes.readyz,
        },
        keyed={
            "models": models.list,
            "model": models.one,
            **{one.path: Inference(one, means) for one in RELAYED},
        },
    )


class Probes:
    """The handlers of `/healthz` and `/readyz`."""

    def __init__(self, current: Current) -> None:
        self._current = current

    async def healthz(self, call: Call) -> None:
        """The process is alive."""
        call.respond(200, ((b"content-type", b"text/plain; charset=utf-8"), NO_STORE), b"ok\n")

    async def readyz(self, call: Call) -> None:
        """Whether this router can serve, what it lacks, and whether it follows its control plane."""
        current = self._current
        lacks = []
        if current.table is None:
            lacks.append("a catalog: no control plane has been reached since the start")
        if current.draining:
            lacks.append("time: it is stopping and finishes what is open")
        body = {
            "ready": not lacks,
            "lacks": lacks,
            "control_plane": "connected"
            if current.connected
            else "not connected; serving what was known last",
            "revision": current.table.revision if current.table is not None else None,
        }
        call.respond(503 if lacks else 200, (JSON, NO_STORE), msgspec.json.encode(body) + b"\n")


def _refuse_method(call: Call, route: Route) -> None:
    text = f"{route.path} takes {route.method}, not {call.exchange.head.method[:20]}."
    answer = error_response(Refuse(Code.METHOD_NOT_ALLOWED, text))
    allow: Header = (b"allow", b"GET, HEAD" if route.method == "GET" else route.method.encode())
    call.respond(answer.status, (*answer.headers, allow), answer.body)
