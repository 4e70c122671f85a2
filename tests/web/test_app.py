"""The admin listener through its front door: who gets in, what is answered, how it refuses."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from starlette.routing import Route

from llmgw.aio.tasks import Tasks
from llmgw.core.inventory import Mark, OperatorMark
from llmgw.web.app import DESCRIPTION, build_admin_app
from llmgw.web.guard import BODY_MAX
from llmgw.wire.admin_v1 import (
    EventRow,
    Explanation,
    ModelRow,
    NodeRow,
    ProblemBody,
    ReplicaRow,
    RouterRow,
    Status,
)
from tests.web.stub import BUSY, EMPTY, NOW, TOKEN, FixedClock, Fleet, StubAdmin, options

BEARER = {"authorization": f"Bearer {TOKEN}"}
HTML = {"accept": "text/html"}


class Door:
    """A client of an application over a stub."""

    def __init__(self, fleet: Fleet = BUSY, **changes: object) -> None:
        self.admin = StubAdmin(fleet)
        self.clock = FixedClock()
        self.app = build_admin_app(self.admin, options(self.clock, **changes))
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081")

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers={**BEARER, **headers})

    async def login(self) -> None:
        answer = await self.client.post("/login", data={"token": TOKEN})
        assert answer.status_code == 303


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    async with door.client:
        yield door


def problem(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/json"
    return msgspec.json.decode(answer.content, type=ProblemBody).error.code


# ---------------------------------------------------------------- who gets in


PATHS = (
    "/",
    "/logout",
    "/nothing",
    "/metrics",
    DESCRIPTION,
    "/api/v1/status",
    "/api/v1/nodes",
    "/api/v1/models/qwen3-8b/explain",
    "/api/v1/replicas/x/logs",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN]
)
async def test_nothing_is_answered_without_the_token(door: Door, path: str, given: str | None) -> None:
    headers = {} if given is None else {"authorization": given}
    answer = await door.client.get(path, headers=headers)
    assert (answer.status_code, problem(answer)) == (401, "token_needed")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_the_token_opens_the_api_whatever_the_case_of_bearer(door: Door) -> None:
    answer = await door.client.get("/api/v1/status", headers={"authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200


async def test_a_refusal_says_where_the_token_is() -> None:
    door = Door(token_path="/var/lib/llmgw/admin-token")
    answer = await door.client.get("/api/v1/status")
    assert "/var/lib/llmgw/admin-token" in answer.text


async def test_alive_needs_no_token(door: Door) -> None:
    answer = await door.client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


async def test_an_unknown_host_name_is_refused_even_with_the_token(door: Door) -> None:
    answer = await door.get("/api/v1/status", host="rebound.example:8081")
    assert (answer.status_code, problem(answer)) == (421, "unknown_host")
    assert "rebound.example" in answer.text
    assert "admin.hosts" in answer.text


async def test_two_host_headers_are_refused(door: Door) -> None:
    headers = [("host", "localhost"), ("host", "evil.example"), ("authorization", f"Bearer {TOKEN}")]
    answer = await door.client.get("/api/v1/status", headers=headers)
    assert answer.status_code == 421


async def test_no_answer_allows_another_origin_to_read_or_frame_it(door: Door) -> None:
    requests = [("GET", "/"), ("GET", "/api/v1/status"), ("GET", "/nothing"), ("OPTIONS", "/api/v1/status")]
    for method, path in requests:
        origin = {"origin": "http://evil.example", "access-control-request-method": "PUT"}
        answer = await door.client.request(method, path, headers={**BEARER, **origin})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


# ---------------------------------------------------------------- pages, cookies, forms


async def test_a_browser_without_a_session_is_sent_to_the_login_form(door: Door) -> None:
    answer = await door.client.get("/", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    form = await door.client.get("/login", headers=HTML)
    assert (form.status_code, 'name="token"' in form.text) == (200, True)


async def test_logging_in_gives_a_cookie_that_scripts_and_other_sites_cannot_use(door: Door) -> None:
    answer = await door.client.post("/login", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert "Secure" not in cookie
    assert (await door.client.get("/", headers=HTML)).status_code == 200


async def test_behind_tls_the_cookie_travels_by_tls_only() -> None:
    answer = await Door(secure=True).client.post("/login", data={"token": TOKEN})
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("token", ["wrong", "", "é", "a" * 9999])
async def test_a_wrong_token_gives_no_cookie(door: Door, token: str) -> None:
    answer = await door.client.post("/login", data={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "not the admin token" in answer.text


async def test_an_old_session_is_sent_to_log_in_again(door: Door) -> None:
    await door.login()
    door.clock.at += 13 * 3600
    assert (await door.client.get("/", headers=HTML)).headers["location"] == "/login"


async def test_a_wrong_bearer_is_not_saved_by_a_good_cookie(door: Door) -> None:
    await door.login()
    answer = await door.client.get("/api/v1/status", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_a_cookie_alone_changes_nothing(door: Door) -> None:
    await door.login()
    url = "/api/v1/nodes/cpu-01/state"
    body: dict[str, Any] = {"state": "cordoned", "reason": "x"}
    for headers in ({}, {"x-form-token": "wrong"}, {"x-form-token": ""}):
        answer = await door.client.put(url, json=body, headers=headers)
        assert (answer.status_code, problem(answer)) == (403, "form_token_missing")
    assert door.admin.marks == []
    assert (await door.client.post("/logout")).status_code == 403


async def test_a_cookie_with_the_pages_form_token_may_act_and_log_out(door: Door) -> None:
    await door.login()
    html = (await door.client.get("/", headers=HTML)).text
    found = re.search(r'name="form_token" value="([0-9a-f]+)"', html)
    assert found
    body = {"state": "cordoned", "reason": "x"}
    headers = {"x-form-token": found[1]}
    assert (
        await door.client.put("/api/v1/nodes/cpu-01/state", json=body, headers=headers)
    ).status_code == 200
    answer = await door.client.post("/logout", data={"form_token": found[1]})
    assert answer.headers["location"] == "/login"
    assert (await door.client.get("/", headers=HTML)).headers["location"] == "/login"


async def test_the_page_shows_states_reasons_and_events_first_what_needs_a_person(door: Door) -> None:
    html = (await door.get("/", **HTML)).text
    assert (
        html.index("broken")
        < html.index("org/big-model:70b")
        < html.index("old-one")
        < html.index("General chat")
    )
    for words in (
        "needs 4 cards of class h100",
        "cordoned by token 2h ago",
        "12.4 GB of 15.2 GB",
        "next try in 42s",
    ):
        assert words in html
    assert "None" not in html


async def test_what_a_model_node_or_log_says_is_never_markup() -> None:
    evil = "<img src=x onerror=alert(1)>\"'\x1b[2J\u202e"
    fleet = Fleet(
        msgspec.structs.replace(
            EMPTY.status,
            store=evil,
            problems=(evil,),
            models=(
                msgspec.structs.replace(BUSY.status.models[3], name=evil, reason=evil, description=evil),
            ),
            routers=(RouterRow(evil, 1, evil, 1, evil),),
        ),
        (
            msgspec.structs.replace(
                BUSY.nodes[0], id=evil, labels={evil: evil}, reasons=(evil,), address=evil
            ),
        ),
        tuple(
            msgspec.structs.replace(
                row,
                id=evil,
                reason=evil,
                shards=(msgspec.structs.replace(row.shards[0], log_tail=(evil,), error=evil),),
            )
            for row in BUSY.replicas
        ),
        (EventRow(NOW, evil, evil, evil, evil, evil),),
    )
    door = Door(fleet)
    html = (await door.get("/", **HTML)).text
    assert "<img" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


async def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_inline_besides(
    door: Door,
) -> None:
    answer = await door.get("/", **HTML)
    policy = answer.headers["content-security-policy"]
    assert policy.count("'sha256-") == 2
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+=|\sstyle=|src=|http://(?!10\.)", answer.text)


async def test_the_page_is_shown_when_the_store_is_down(door: Door) -> None:
    door.admin.store_down = True
    assert (await door.get("/", **HTML)).status_code == 200


# ---------------------------------------------------------------- the API


@pytest.mark.parametrize(
    ("path", "kind", "rows"),
    [
        ("/api/v1/status", Status, None),
        ("/api/v1/nodes", list[NodeRow], 4),
        ("/api/v1/replicas", list[ReplicaRow], 4),
        ("/api/v1/models", list[ModelRow], 6),
        ("/api/v1/routers", list[RouterRow], 1),
        ("/api/v1/events", list[EventRow], 4),
        ("/api/v1/events?limit=2", list[EventRow], 2),
        ("/api/v1/events?model=broken", list[EventRow], 1),
        ("/api/v1/events?node=cpu-01", list[EventRow], 2),
        ("/api/v1/models/qwen3-8b/explain", Explanation, None),
    ],
)
async def test_every_table_is_the_json_of_its_type(
    door: Door, path: str, kind: Any, rows: int | None
) -> None:
    answer = await door.get(path)
    assert answer.status_code == 200
    value = msgspec.json.decode(answer.content, type=kind)
    assert rows is None or len(value) == rows


async def test_the_unknown_is_null(door: Door) -> None:
    lost = (await door.get("/api/v1/nodes")).json()[3]
    assert (lost["gpus"], lost["memory_total_bytes"], lost["engines"]) == (None, None, None)


@pytest.mark.parametrize("name", ["org/big-model:70b", "org%2Fbig-model%3A70b"])
async def test_a_models_name_may_hold_slashes_and_colons(door: Door, name: str) -> None:
    answer = await door.get(f"/api/v1/models/{name}/explain")
    assert answer.json()["model"] == "org/big-model:70b"


async def test_a_node_is_marked_with_reason_actor_and_time(door: Door) -> None:
    body = {"state": "cordoned", "reason": "new disk"}
    answer = await door.client.put("/api/v1/nodes/cpu-01/state", json=body, headers=BEARER)
    assert (answer.status_code, answer.json()["mark"]) == (200, "cordoned")
    assert door.admin.marks == [("cpu-01", OperatorMark(Mark.CORDONED, "new disk", "token", NOW))]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"\xff", "body"),
        (b'{"state": "gone"}', "$.state"),
        (b'{"reason": "x"}', "state"),
        (b'{"state": "ready", "force": true}', "force"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_with_the_field(
    door: Door, body: bytes, said: str
) -> None:
    answer = await door.client.put("/api/v1/nodes/cpu-01/state", content=body, headers=BEARER)
    assert (answer.status_code, problem(answer)) == (400, "bad_request")
    assert said in answer.json()["error"]["message"]
    assert door.admin.marks == []


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2", "limt=5"])
async def test_a_query_that_cannot_be_read_is_refused(door: Door, query: str) -> None:
    answer = await door.get(f"/api/v1/events?{query}")
    assert (answer.status_code, problem(answer)) == (400, "bad_request")


async def test_a_body_beyond_the_bound_is_refused(door: Door) -> None:
    answer = await door.client.put(
        "/api/v1/nodes/cpu-01/state", content=b" " * (BODY_MAX + 1), headers=BEARER
    )
    assert (answer.status_code, problem(answer)) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/nodez", 404, "not_found"),
        ("GET", "/api/v1/nodes/", 404, "not_found"),
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/api/v1/models/nope/explain", 404, "unknown_model"),
        ("GET", "/api/v1/replicas/nope/logs", 404, "unknown_replica"),
        ("PUT", "/api/v1/nodes/nope/state", 404, "unknown_node"),
        ("DELETE", "/api/v1/nodes", 405, "method_not_allowed"),
        ("GET", "/api/v1/nodes/cpu-01/state", 405, "method_not_allowed"),
    ],
)
async def test_what_does_not_exist_is_refused_as_json(
    door: Door, method: str, path: str, status: int, code: str
) -> None:
    content = b'{"state": "ready"}' if method == "PUT" else None
    answer = await door.client.request(method, path, content=content, headers=BEARER)
    assert (answer.status_code, problem(answer)) == (status, code)


async def test_a_store_that_does_not_answer_is_said(door: Door) -> None:
    door.admin.store_down = True
    answer = await door.get("/api/v1/events")
    assert (answer.status_code, problem(answer)) == (503, "store_unavailable")


async def test_a_fault_is_json_without_its_traceback(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door.admin, "status", lambda: 1 / 0)
    answer = await door.get("/api/v1/status")
    assert (answer.status_code, problem(answer)) == (500, "internal_error")
    assert "division" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


# ---------------------------------------------------------------- logs


async def test_log_lines_are_plain_text_without_control_characters(door: Door) -> None:
    door.admin.log_lines = ("one", "\x1b[31mtwo\x1b[0m\x07", "three\r\n")
    answer = await door.get("/api/v1/replicas/smollm2-0badcafe/logs?rank=1&lines=7")
    assert answer.text == "one\ntwo\\x07\nthree\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert door.admin.logs_asked == [("smollm2-0badcafe", 1, 7, False)]
    assert door.admin.followers[0].closed.is_set()


async def test_followed_lines_come_at_once_and_the_follower_is_closed_when_the_reader_leaves(
    door: Door,
) -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/replicas/smollm2-0badcafe/logs",
        "raw_path": b"",
        "query_string": b"follow=true",
        "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())],
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            lines.put_nowait(message["body"])

    tasks = Tasks()
    asked = tasks.start(door.app(scope, receive, send), name="logs")
    assert [await lines.get(), await lines.get()] == [b"loading model\n", b"listening\n"]
    assert not asked.done()
    left.set()
    await asyncio.wait_for(asked, 5)
    assert door.admin.followers[0].closed.is_set()
    assert lines.empty()  # not ended as a whole answer


# ---------------------------------------------------------------- its description


async def test_every_route_of_the_api_is_described_and_every_described_one_exists(door: Door) -> None:
    described = (await door.get(DESCRIPTION)).json()
    routed = {
        (re.sub(r":path\}", "}", route.path), method.lower())
        for route in door.app.routes
        if isinstance(route, Route) and route.methods
        if route.path.startswith("/api/") or route.path == "/healthz"
        for method in route.methods - {"HEAD"}
    }
    listed = {(path, method) for path, ways in described["paths"].items() for method in ways}
    assert listed == routed - {(DESCRIPTION, "get")}


async def test_the_description_is_whole(door: Door) -> None:
    described = (await door.get(DESCRIPTION)).json()
    assert described["openapi"].startswith("3.1")
    names = [way["operationId"] for ways in described["paths"].values() for way in ways.values()]
    assert len(names) == len(set(names))
    components = described["components"]["schemas"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', (await door.get(DESCRIPTION)).text))
    assert references == set(components)
    for path, ways in described["paths"].items():
        for way in ways.values():
            in_path = {p["name"] for p in way["parameters"] if p["in"] == "path"}
            assert in_path == set(re.findall(r"\{(\w+)\}", path))
            if path != "/healthz":
                assert {"200", "401", "421"} <= set(way["responses"])
