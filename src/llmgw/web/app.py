"""Joins guard, API and pages into the application of the admin listener.

Laws: it speaks to the control plane through `ports.ClusterAdmin` alone; handlers are coroutines, none
runs in a thread; a path or method that does not exist is refused as JSON like everything else.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from llmgw import __version__
from llmgw.ports import AdminRefused, ClusterAdmin, StoreUnavailable
from llmgw.web.answers import json_answer, problem
from llmgw.web.api import OPERATIONS, V1
from llmgw.web.guard import Guard
from llmgw.web.openapi import describe
from llmgw.web.operations import BadInput, route
from llmgw.web.options import AdminOptions
from llmgw.web.pages import Pages
from llmgw.web.session import Sessions

DESCRIPTION = f"{V1}/openapi.json"


def build_admin_app(admin: ClusterAdmin, options: AdminOptions) -> Starlette:
    """The admin API and its pages, as an ASGI application for one control plane."""
    sessions = Sessions(options.token)
    description = json_answer(describe(OPERATIONS, __version__))

    async def describe_api(request: Request) -> Response:
        return description

    app = Starlette(
        routes=[
            *(route(operation, admin, options) for operation in OPERATIONS),
            Route(DESCRIPTION, describe_api),
            *Pages(admin, options, sessions).routes(),
        ],
        middleware=[Middleware(Guard, options=options, sessions=sessions)],
        exception_handlers={
            HTTPException: _no_such_place,
            AdminRefused: _refused,
            StoreUnavailable: _store_unavailable,
            BadInput: _bad_input,
            Exception: _fault,
        },
    )
    app.router.redirect_slashes = False  # `/api/v1/nodes/` does not exist, and says so
    return app


async def _no_such_place(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        text = f"{request.url.path} does not take {request.method}, but {headers.get('Allow', 'GET')}"
        return problem(405, "method_not_allowed", text, headers)
    text = f"there is no {request.url.path}; {DESCRIPTION} lists what there is"
    return problem(error.status_code, "not_found", text, headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, AdminRefused)
    return problem(error.status, error.code, str(error))


async def _store_unavailable(request: Request, error: Exception) -> Response:
    return problem(503, "store_unavailable", f"the database does not answer: {error}")


async def _bad_input(request: Request, error: Exception) -> Response:
    return problem(400, "bad_request", str(error))


async def _fault(request: Request, error: Exception) -> Response:
    return problem(500, "internal_error", "a fault in this program; the server's log has it")
