"""Decides whether a request for an engine is accepted, and hands it on to be relayed (G5).

Laws: steps in one order, each cheap: body, ask, model, permission, then the relay; what is refused
before a model was found and allowed leaves no usage row, what comes after leaves exactly one.
"""

import asyncio

import msgspec

from llmgw.core.accounts import model_allowed
from llmgw.core.exchange import Case
from llmgw.core.refusal import Code, Refuse
from llmgw.gateway.call import Call, Caller
from llmgw.gateway.checks import Asking, doubtful, lacks, too_long, too_long_for_sure
from llmgw.gateway.record import Accepted, Record
from llmgw.gateway.relay import Job, Means, Relay, Spare
from llmgw.gateway.served_routes import Relayed
from llmgw.gateway.state import Served
from llmgw.gateway.usage import UsageBuffer
from llmgw.ports import BodyTooLarge, BodyTooSlow, Clock
from llmgw.wire.openai import Ask, body_for_engine, parse_ask

MIB = 1024 * 1024


class InferenceMeans(msgspec.Struct, frozen=True):
    """What serving needs."""

    relay: Means
    usage: UsageBuffer
    clock: Clock
    max_body_mb: int


class Inference:
    """The handler of one route that engines answer."""

    def __init__(self, route: Relayed, means: InferenceMeans) -> None:
        self._route = route
        self._target = route.path.encode()
        self._means = means
        self._body_max = means.max_body_mb * MIB

    async def __call__(self, call: Call, caller: Caller) -> None:
        """Serve one request."""
        means, route = self._means, self._route
        try:
            body = await call.exchange.read_body(self._body_max)
        except (BodyTooLarge, BodyTooSlow) as failed:
            call.refuse(self._body_refusal(failed))
            return
        ask = parse_ask(body, streams=route.streams)
        if not isinstance(ask, Ask):
            call.refuse(Refuse(Code.INVALID_REQUEST, ask.message, ask.param))
            return
        model = self._model(ask, caller)
        if not isinstance(model, Served):
            call.refuse(model)
            return
        time, name = means.relay.time, model.entry.name
        accepted = Accepted(
            call.request_id, caller.key, ask, name, route, len(body), means.clock.now(), time()
        )
        record = Record(accepted, time)
        spare = self._spare(Asking(route, body), model, caller) if model.entry.fallbacks else ()
        try:
            refuse = await self._unfit(Asking(route, body), model, record) if doubtful(body, model) else None
            if refuse is not None and refuse.code is Code.CONTEXT_EXCEEDED:
                roomier = [one for one in spare if Case.CONTEXT in one.cases]
                if roomier:
                    model, spare, refuse = roomier[0].model, tuple(roomier[1:]), None
                    name = model.entry.name
                    record.fell_back(name)
            if refuse is not None:
                record.failed(refuse)
                call.refuse(refuse)
                return
            engines_body = body_for_engine(body, ask, name)
            job = Job(call, ask, model, route, self._target, engines_body, body, spare)
            await Relay(job, means.relay, record).run()
        finally:
            record.write(means.usage)

    def _spare(self, asking: Asking, model: Served, caller: Caller) -> tuple[Spare, ...]:
        """The fallbacks of a model that this key may use and that can take this request (G11)."""
        found = []
        for one in model.entry.fallbacks or ():
            served = caller.table.models.get(one.model)
            if served is None or not model_allowed(caller.key.models, one.model):
                continue
            if lacks(asking, served) is None and too_long_for_sure(asking, served) is None:
                found.append(Spare(served, frozenset(case for case in Case if case.value in one.on)))
        return tuple(found)

    async def _unfit(self, asking: Asking, model: Served, record: Record) -> Refuse | None:
        """Why the model cannot take the request, if so."""
        refuse = lacks(asking, model)
        if refuse is not None:
            return refuse
        relay = self._means.relay
        try:
            return await too_long(asking, model, relay.desk, relay.upstream)
        except asyncio.CancelledError:
            record.client_left()
            raise

    def _body_refusal(self, failed: BodyTooLarge | BodyTooSlow) -> Refuse:
        if isinstance(failed, BodyTooSlow):
            return Refuse(Code.BODY_TOO_SLOW, "The body came too slowly and was given up.")
        limit_mb = self._means.max_body_mb
        text = f"The body is larger than {limit_mb} MB; send less, or have `clients.max_body_mb` raised."
        return Refuse(Code.BODY_TOO_LARGE, text)

    def _model(self, ask: Ask, caller: Caller) -> Served | Refuse:
        table, key = caller.table, caller.key
        model = table.resolve(ask.model, self._means.relay.draw)
        if model is None:
            return unknown_model(ask.model, caller)
        if not model_allowed(key.models, model.entry.name):
            return Refuse(
                Code.PERMISSION_DENIED, f"This API key may not use the model {ask.model!r}.", "model"
            )
        return model


def unknown_model(name: str, caller: Caller) -> Refuse:
    """The refusal of a name nobody knows, with those that are close."""
    near = caller.table.near_names(name, caller.key.models)
    meant = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    text = f"There is no model {name!r}.{meant} `GET /v1/models` lists those this key may use."
    return Refuse(Code.MODEL_NOT_FOUND, text, "model")
