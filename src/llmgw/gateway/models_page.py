"""Decides what `/v1/models` tells of a model: what is known, under every name clients read (G2).

Laws: only models the key may use; a value nobody knows is left out, never null, 0 or a guess.
"""

from typing import Any

import msgspec

from llmgw.core.catalog import Mode
from llmgw.gateway.call import JSON, NO_STORE, Call, Caller
from llmgw.gateway.desk import Desk
from llmgw.gateway.inference import unknown_model
from llmgw.wire.watch_v1 import ModelEntry

# The names under which clients look for the length of the context.
CONTEXT_NAMES = (
    "context_length",
    "max_model_len",
    "context_window",
    "max_context_length",
    "max_input_tokens",
)


class ModelsPage:
    """The handlers of `/v1/models` and `/v1/models/{id}`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def list(self, call: Call, caller: Caller) -> None:
        """Every model the key may use."""
        usable = caller.table.usable_models(caller.key.models)
        data = [self._describe(served.entry) for served in usable]
        call.respond(200, (JSON, NO_STORE), msgspec.json.encode({"object": "list", "data": data}))

    async def one(self, call: Call, caller: Caller) -> None:
        """One model; an alias with a single target is answered for by it."""
        usable = {served.entry.name: served.entry for served in caller.table.usable_models(caller.key.models)}
        entry = usable.get(call.argument)
        if entry is None:
            entry = next((one for one in usable.values() if call.argument in one.aliases), None)
        if entry is None:
            call.refuse(unknown_model(call.argument, caller))
            return
        call.respond(200, (JSON, NO_STORE), msgspec.json.encode(self._describe(entry)))

    def _describe(self, entry: ModelEntry) -> dict[str, Any]:
        described: dict[str, Any] = {
            "id": entry.name,
            "object": "model",
            "created": entry.created,
            "owned_by": entry.owned_by,
            "name": entry.name,
            "state": self._state(entry),
        }
        if entry.description is not None:
            described["description"] = entry.description
        if entry.context_length is not None:
            described |= dict.fromkeys(CONTEXT_NAMES, entry.context_length)
            described["meta"] = {"n_ctx": entry.context_length}
        if entry.capabilities is not None:
            described["capabilities"] = entry.capabilities
        if entry.aliases:
            described["aliases"] = entry.aliases
        return described

    def _state(self, entry: ModelEntry) -> str:
        if self._desk.ready(entry.name):
            return "ready"
        if entry.starting:
            return "loading"
        if entry.mode == Mode.ON_DEMAND.value:
            return "on-demand"
        return "off" if entry.mode == Mode.OFF.value else "unavailable"
