"""Decides what `llmgw up` says while it starts, from what the admin API tells of the fleet.

Laws: pure; one line at a time; a model that cannot start is said with its reason, and said again only when
the reason is another; ready means that a router has been told of the endpoint.
"""

from collections.abc import Sequence

import msgspec

from llmgw.core.units import format_duration
from llmgw.wire.admin_v1 import ModelRow, ReplicaRow, Status


class Progress(msgspec.Struct, frozen=True):
    """How far the start has come: `ready` names models that serve, `trouble` is one line a model."""

    line: str
    ready: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()
    done: bool = False  # every model that should run serves, or says why not


def progress(status: Status | None, replicas: Sequence[ReplicaRow]) -> Progress:
    """What to say now. `status` is `None` while the server does not answer."""
    if status is None:
        return Progress("starting the server")
    wanted = [model for model in status.models if model.wanted]
    told = any(
        router.revision is not None and router.revision >= status.revision for router in status.routers
    )
    # Real ones first: the first is the one people are shown how to ask.
    ready = tuple(model.name for model in sorted(wanted, key=lambda one: one.simulated) if model.ready)
    # Until a node has joined, "no node" is how it begins and no trouble.
    joined = bool(status.nodes.get("ready"))
    trouble = tuple(line for model in wanted if (line := _trouble(model))) if joined else ()
    unsettled = [model for model in wanted if not model.ready and (not joined or _trouble(model) is None)]
    if unsettled:
        return Progress(_waiting_for(unsettled[0], status, replicas), ready if told else (), trouble)
    if wanted and not ready:
        return Progress("no model runs yet", trouble=trouble)
    if not told:
        return Progress("telling the router" if ready else "starting the router", trouble=trouble)
    return Progress("ready", ready, trouble, done=True)


def _waiting_for(model: ModelRow, status: Status, replicas: Sequence[ReplicaRow]) -> str:
    mine = [one for one in replicas if one.model == model.name and one.state not in {"failed", "stopping"}]
    for replica in mine:
        for shard in replica.shards:
            more = f": {shard.progress}" if shard.progress else ""
            return f"{model.name}: {shard.phase} on {shard.node}{more}"
    if not status.nodes.get("ready"):
        return "waiting for this machine's agent"
    if status.settling_s is not None:
        return f"{model.name}: looking for what runs already"
    return f"{model.name}: placing"


def _trouble(model: ModelRow) -> str | None:
    if model.ready or model.reason is None or model.state not in {"failed", "waiting"}:
        return None
    again = ""
    if model.retry_s is not None:
        again = f" (next try in {format_duration(max(1.0, model.retry_s))})"
    return f"{model.name} does not run: {model.reason}{again}"


def same_trouble(one: str, other: str) -> bool:
    """Whether two lines say the same, however long the next try is away."""
    return one.partition(" (next try")[0] == other.partition(" (next try")[0]
