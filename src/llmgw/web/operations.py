"""Decides what one operation of the admin API is, reads its input and writes its answer.

Laws: an operation says what it reads and answers in types; the same types check a request and make the
API's description, so that neither can say what the other does not; unknown fields are refused.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llmgw.ports import ClusterAdmin
from llmgw.web.answers import json_answer
from llmgw.web.guard import CALLER
from llmgw.web.options import AdminOptions

T = TypeVar("T", bound=msgspec.Struct)

JSON = "application/json"
TEXT = "text/plain"


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The input of an operation that reads no query, or no body."""


class BadInput(Exception):
    """A query or body that cannot be read; the text names the field (400)."""


class Call(msgspec.Struct, frozen=True):
    """One call of an operation: its input as read, who calls, and what answers."""

    admin: ClusterAdmin
    path: dict[str, str]
    query: msgspec.Struct
    body: msgspec.Struct
    actor: str
    now: float

    def query_as(self, kind: type[T]) -> T:
        """The query, of the type the operation declares."""
        assert isinstance(self.query, kind)
        return self.query

    def body_as(self, kind: type[T]) -> T:
        """The body, of the type the operation declares."""
        assert isinstance(self.body, kind)
        return self.body


class Operation(msgspec.Struct, frozen=True):
    """One operation. `run` returns a value of type `answer`, or a whole `Response` when media is text."""

    method: str
    path: str  # parameters as {name}; they may hold slashes
    name: str
    summary: str
    run: Callable[[Call], Awaitable[object]]
    answer: object = str
    media: str = JSON
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] = Nothing
    refusals: tuple[int, ...] = ()  # besides those of every operation
    keyless: bool = False


def route(operation: Operation, admin: ClusterAdmin, options: AdminOptions) -> Route:
    """The route that answers an operation."""

    async def endpoint(request: Request) -> Response:
        caller = request.scope.get(CALLER)
        call = Call(
            admin=admin,
            path=dict(request.path_params),
            query=_query(request, operation.query),
            body=await _body(request, operation.body),
            actor=caller.actor if caller is not None else "",
            now=options.clock.now(),
        )
        result = await operation.run(call)
        return result if isinstance(result, Response) else json_answer(result)

    path = operation.path.replace("}", ":path}")
    return Route(path, endpoint, methods=[operation.method], name=operation.name)


def _query(request: Request, kind: type[T]) -> T:
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"query parameter {name!r} is given {names.count(name)} times")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as wrong:
        known = ", ".join(kind.__struct_fields__) or "none"
        raise BadInput(f"query: {wrong} (parameters: {known})") from None


async def _body(request: Request, kind: type[T]) -> T:
    if kind is Nothing:
        return kind()  # an operation without input ignores what is sent
    data = await request.body()
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as wrong:  # ValidationError is one
        raise BadInput(f"body: {wrong}") from None
    except UnicodeDecodeError:
        raise BadInput("body: is not UTF-8") from None
