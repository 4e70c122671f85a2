"""Asks an engine whether it can serve, and whether it is the engine it should be.

Laws: a question is bounded; an answer of 200 on the health path is not enough to be called ready, since
another process may hold the port: the served name must come back under this replica's own key.
"""

import msgspec

from llmgw.engines import ADAPTERS
from llmgw.ports import HeaderList, HttpTimeouts, Upstream, UpstreamBroke, UpstreamRequest
from llmgw.wire.agent_v1 import ShardSpec

ANSWER_MAX = 256 * 1024
MODELS_PATH = "/v1/models"


class _Model(msgspec.Struct, frozen=True):
    id: str = ""


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...] = ()


async def ask(upstream: Upstream, spec: ShardSpec, *, identify: bool, within: float) -> str:
    """What was wrong with the engine's answer; "" when it is well."""
    adapter = ADAPTERS[spec.engine]
    status, _ = await _get(upstream, spec, adapter.health_path, within)
    if isinstance(status, str):
        return status
    if status != 200:
        return f"{adapter.health_path} answers {status}"
    return await _identify(upstream, spec, within) if identify else ""


async def _identify(upstream: Upstream, spec: ShardSpec, within: float) -> str:
    status, body = await _get(upstream, spec, MODELS_PATH, within)
    if isinstance(status, str):
        return status
    if status != 200:
        return f"another server holds port {spec.port}: {MODELS_PATH} answers {status} to this replica's key"
    try:
        served = [model.id for model in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return f"another server holds port {spec.port}: {MODELS_PATH} is not a list of models"
    if spec.model in served:
        return ""
    return f"another server holds port {spec.port}: it serves {', '.join(served[:3]) or 'nothing'}"


async def _get(upstream: Upstream, spec: ShardSpec, path: str, within: float) -> tuple[int | str, bytes]:
    headers: HeaderList = ()
    if spec.engine_key:
        headers = ((b"authorization", b"Bearer " + spec.engine_key.encode()),)
    request = UpstreamRequest(
        host=spec.address,
        port=spec.port,
        method="GET",
        target=path.encode(),
        headers=tuple(headers),
        body=b"",
        timeouts=HttpTimeouts(connect=within, first_byte=within, idle=within, total=within),
    )
    try:
        answer = await upstream.fetch(request, ANSWER_MAX)
    except UpstreamBroke as broke:
        return f"{path}: {broke.reason}", b""
    return answer.status, answer.body
