"""The one way in: every route, who may use it, and what is said to those who may not."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from llmgw.core.accounts import make_key
from llmgw.gateway.pages import ASSETS
from llmgw.gateway.serve import ROUTES, Access
from llmgw.wire import watch_v1 as wire
from tests.gateway.toolkit import KEY, KEY_ENTRY, MODEL, Engine, Rig, rig, snapshot

EXEMPT = {
    "/", "/chat", "/healthz", "/readyz",
    "/assets/page.css", "/assets/chat.css", "/assets/chat.js", "/assets/landing.js", "/assets/icon.svg",
}  # fmt: skip


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def test_exempt_from_the_key_are_exactly_these_and_no_prefix() -> None:
    assert {route.path for route in ROUTES if route.access is Access.OPEN} == EXEMPT
    assert not any(path.endswith(("*", "/")) for path in EXEMPT - {"/"})
    assert set(ASSETS) < EXEMPT


async def test_every_route_answers_without_a_key_exactly_when_it_is_exempt(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        for route in ROUTES:
            path = route.path.replace("*", "m")
            answer = await served.client.request(route.method, path, headers={"authorization": ""})
            if route.access is Access.OPEN:
                assert answer.status_code == 200, path
                assert b'"m"' not in answer.content, "data before a key"
            else:
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize(
    "path",
    ["//", "/v1", "/v1/", "/chat/", "/assets/", "/assets/../v1/models", "/./chat", "/%63hat", "/healthz/x",
     "/v1/models/", "/v1//models", "/V1/models", "/assets/chat.js/x"],
)  # fmt: skip
async def test_a_path_that_is_not_in_the_table_is_nothing_however_it_is_spelled(
    tmp_path: Path, path: str
) -> None:
    async with rig(tmp_path) as served:
        assert (await raw(served, path.encode())).startswith(b"HTTP/1.1 404 ")


async def raw(served: Rig, path: bytes) -> bytes:
    """A path as it is written, which clients would tidy."""
    host, _, port = served.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path)
    answer = await reader.read()
    writer.close()
    return answer


async def test_another_method_is_told_which_one_it_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        answer = await served.client.get("/v1/chat/completions")
        assert answer.status_code == 405 and answer.headers["allow"] == "POST"
        assert error_of(answer)["code"] == "method_not_allowed"
        assert (await served.client.head("/healthz")).status_code == 200


WRONG = make_key(random.Random(8)).text
SAME_ID = KEY.text[:-4] + "AAAA"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", f"Bearer {WRONG}", f"Bearer {SAME_ID}", f"Basic {KEY.text}", f"Bearer {KEY.text}x",
     "Bearer sk-llmgw-", "Bearer \xff\xfe"],
)  # fmt: skip
async def test_a_wrong_key_is_401_and_never_repeated(tmp_path: Path, header: str | None) -> None:
    async with rig(tmp_path) as served:
        headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
        async with httpx.AsyncClient(base_url=served.client.base_url) as client:
            answer = await client.get("/v1/models", headers=headers)
        assert answer.status_code == 401
        assert error_of(answer)["code"] == "invalid_api_key"
        secret = (header or "").partition(" ")[2]
        assert len(secret) < 10 or secret not in answer.text


@pytest.mark.parametrize("change", [{"disabled": True}, {"expires_at": 1.0}, {"secret_sha256": "0" * 64}])
async def test_a_key_that_is_no_longer_good_stops_working_at_the_next_revision(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    async with rig(tmp_path) as served:
        assert (await served.client.get("/v1/models")).status_code == 200
        entry = msgspec.structs.replace(KEY_ENTRY, **change)
        await served.control.publish(wire.Update(2, keys=(entry,)))
        assert (await served.client.get("/v1/models")).status_code == 401


async def test_a_deleted_key_stops_working_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        await served.control.publish(wire.Update(2, gone_keys=(KEY.public_id,)))
        assert (await served.chat()).status_code == 401
        assert served.control.rows == []


def limited(*patterns: str) -> Any:
    """A table whose key may use only models that match, out of m, qwen-7b and qwen-72b."""

    def table(engines: list[Engine]) -> wire.Snapshot:
        return snapshot(
            engines,
            keys=(msgspec.structs.replace(KEY_ENTRY, models=patterns),),
            models=(MODEL, wire.ModelEntry("qwen-7b", "always"), wire.ModelEntry("qwen-72b", "off")),
            aliases=(wire.AliasEntry("fast", (("m", 1.0),)),),
        )

    return table


async def test_a_key_sees_and_uses_only_its_models(tmp_path: Path) -> None:
    async with rig(tmp_path, table=limited("qwen*")) as served:
        listed = (await served.client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["qwen-72b", "qwen-7b"]
        assert (await served.client.get("/v1/models/m")).status_code == 404
        for name in ("m", "fast"):
            answer = await served.chat(model=name)
            assert (answer.status_code, error_of(answer)["code"]) == (403, "permission_denied")
        assert served.engines[0].asked == [] and served.control.rows == []


async def test_an_alias_opens_no_model_the_key_may_not_use(tmp_path: Path) -> None:
    async with rig(tmp_path, table=limited("fast")) as served:
        answer = await served.chat(model="fast")
        assert (answer.status_code, error_of(answer)["code"]) == (403, "permission_denied")


async def test_an_unknown_model_is_404_with_names_that_are_close_and_allowed(tmp_path: Path) -> None:
    async with rig(tmp_path, table=limited("qwen-7b")) as served:
        answer = await served.chat(model="qwen-7")
        error = error_of(answer)
        assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert "'qwen-7b'" in error["message"] and "qwen-72b" not in error["message"]


async def test_an_alias_is_answered_by_its_model(tmp_path: Path) -> None:
    async with rig(tmp_path, table=limited("*")) as served:
        answer = await served.chat(model="fast")
        assert answer.status_code == 200 and answer.headers["x-llmgw-model"] == "m"
        assert served.engines[0].asked[0].json()["model"] == "m"
        row = await served.control.row()
        assert (row.model_asked, row.model_answered) == ("fast", "m")


@pytest.mark.parametrize(
    ("entry", "status", "code", "words"),
    [
        ({"mode": "off"}, 503, "model_off", "is off"),
        ({"starting": True}, 503, "model_loading", "is loading"),
        ({"reason": "needs 24 GB, has 8 GB"}, 503, "no_endpoint", "needs 24 GB, has 8 GB"),
    ],
)
async def test_a_known_model_that_nothing_can_serve_says_why(
    tmp_path: Path, entry: dict[str, Any], status: int, code: str, words: str
) -> None:
    def table(engines: list[Engine]) -> wire.Snapshot:
        return snapshot(engines, endpoints=(), models=(msgspec.structs.replace(MODEL, **entry),))

    async with rig(tmp_path, table=table) as served:
        answer = await served.chat()
        error = error_of(answer)
        assert (answer.status_code, error["code"]) == (status, code)
        assert words in error["message"]
        if code == "model_off":
            assert answer.headers["x-should-retry"] == "false"
        else:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
        row = await served.control.row()
        assert (row.status, row.error, row.attempts, row.replica) == (status, code, 0, None)
        await served.control.until(lambda: "m" in served.control.use().demand)


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", "empty"), (b'{"model": "m", ', "not valid JSON"), (b"[1]", "JSON object"), (b"{}", "no model")],
)
async def test_a_body_that_is_no_request_is_400_and_leaves_no_row(
    tmp_path: Path, body: bytes, words: str
) -> None:
    async with rig(tmp_path) as served:
        answer = await served.client.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400 and words in error_of(answer)["message"]
        await served.settled()
        assert served.control.rows == []


async def test_a_body_above_the_limit_is_413(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        answer = await served.client.post("/v1/chat/completions", content=b"x" * (1024 * 1024 + 1))
        assert (answer.status_code, error_of(answer)["code"]) == (413, "body_too_large")
        assert "1 MB" in error_of(answer)["message"]


async def test_models_are_told_under_every_name_clients_read_and_unknown_is_left_out(
    tmp_path: Path,
) -> None:
    def table(engines: list[Engine]) -> wire.Snapshot:
        bare = wire.ModelEntry("org/bare model", "always", starting=True)
        return snapshot(engines, models=(MODEL, bare))

    async with rig(tmp_path, table=table) as served:
        full, bare = (await served.client.get("/v1/models")).json()["data"]
        assert full["id"] == full["name"] == "m" and full["object"] == "model" and full["created"] == 5
        assert full["context_length"] == full["max_model_len"] == full["meta"]["n_ctx"] == 4096
        assert full["state"] == "ready"
        assert set(bare) == {"id", "object", "created", "owned_by", "name", "state"}
        assert bare["state"] == "loading"
        one = await served.client.get("/v1/models/org%2Fbare%20model")
        assert one.json() == bare
        missing = await served.client.get("/v1/models/none")
        assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")


async def test_readyz_says_what_it_lacks_and_when_the_control_plane_is_away(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        ready = await served.client.get("/readyz", headers={"authorization": ""})
        assert ready.json() == {"ready": True, "lacks": [], "control_plane": "connected", "revision": 1}
        await served.control.close()
        while (await served.client.get("/readyz")).json()["control_plane"] == "connected":
            pass
        away = await served.client.get("/readyz")
        assert away.status_code == 200 and away.json()["ready"] is True
        assert (await served.chat()).status_code == 200
