"""Makes the OpenAPI description of the admin API from its table of operations.

Law: nothing is described by hand that the types say already.
"""

import re
from typing import Any, Final

import msgspec

from llmgw.web.operations import Nothing, Operation
from llmgw.wire.admin_v1 import ProblemBody

REFERENCE = "#/components/schemas/{name}"

_EVERYWHERE: Final = {
    400: "a query or body that cannot be read",
    401: "no token, or a wrong one",
    404: "no such thing",
    421: "asked by a host name this listener is not known by",
    500: "a fault of this program; its log has it",
    503: "what is needed to answer does not answer",
}
_ALWAYS = (400, 401, 421, 500)


def describe(operations: tuple[Operation, ...], version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    kinds = [op.answer for op in operations if op.answer is not str]
    kinds += [op.body for op in operations if op.body is not Nothing]
    schemas, components = msgspec.json.schema_components([*kinds, ProblemBody], ref_template=REFERENCE)
    by_kind = dict(zip(map(repr, [*kinds, ProblemBody]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _operation(operation, by_kind)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "llmgw admin API", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, by_kind: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "string"} if operation.answer is str else by_kind[repr(operation.answer)]
    refusals = () if operation.keyless else sorted({*_ALWAYS, *operation.refusals})
    problem = {"application/json": {"schema": by_kind[repr(ProblemBody)]}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {
            "200": {"description": "done", "content": {operation.media: {"schema": schema}}},
            **{str(code): {"description": _EVERYWHERE[code], "content": problem} for code in refusals},
        },
    }
    if operation.body is not Nothing:
        content = {"application/json": {"schema": by_kind[repr(operation.body)]}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.keyless:
        described["security"] = []
    return described


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", operation.path)
    return [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(operation.query)
    fields = schema["$defs"][operation.query.__name__]["properties"]
    return [{"name": n, "in": "query", "required": False, "schema": s} for n, s in fields.items()]
