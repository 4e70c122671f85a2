"""Decides what a router serves right now: one immutable table, built from the watch stream (G17).

Laws: a request reads the table once and keeps to it; a table is replaced whole, never changed; what a
request needs again and again (timeouts, header bytes) is made when the table is, not when it is asked.
"""

import difflib
import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import msgspec

from llmgw.core.accounts import model_allowed
from llmgw.ports import HttpTimeouts
from llmgw.wire.watch_v1 import AliasEntry, EndpointEntry, KeyEntry, ModelEntry, Snapshot, Update

Header = tuple[bytes, bytes]
E = TypeVar("E")

# Comparing one name with thousands of others would hold up every stream; these are looked at.
NEAR_CANDIDATES = 64


class Served(msgspec.Struct, frozen=True):
    """A model as requests need it."""

    entry: ModelEntry
    timeouts: HttpTimeouts
    header: Header  # x-llmgw-model


class Table(msgspec.Struct, frozen=True):
    """Everything a router serves from, at one revision."""

    revision: int
    cluster_id: str
    models: Mapping[str, Served]
    aliases: Mapping[str, AliasEntry]
    endpoints: Mapping[str, EndpointEntry]
    keys: Mapping[str, KeyEntry]  # by public id
    kept: frozenset[str] = (
        frozenset()
    )  # endpoints of an earlier server, on nodes the present one has not heard

    def resolve(self, name: str, draw: random.Random) -> Served | None:
        """The model a name or alias stands for; only a weighted alias uses `draw` (C2)."""
        model = self.models.get(name)
        if model is not None:
            return model
        alias = self.aliases.get(name)
        known = [target for target in alias.targets if target[0] in self.models] if alias else []
        if not known:
            return None
        if len(known) == 1:
            return self.models[known[0][0]]
        names = [target for target, _ in known]
        return self.models[draw.choices(names, [weight for _, weight in known])[0]]

    def usable_models(self, patterns: tuple[str, ...] | None) -> list[Served]:
        """The models a key with these patterns may use, by name."""
        return [served for name, served in sorted(self.models.items()) if model_allowed(patterns, name)]

    def near_names(self, name: str, patterns: tuple[str, ...] | None, limit: int = 3) -> tuple[str, ...]:
        """Names like `name` that a key with these patterns may use, closest first."""
        wanted = name.lower()
        candidates: dict[str, str] = {}
        for known in self._known_names(patterns):
            folded = known.lower()
            if folded[:2] == wanted[:2] or wanted in folded or folded in wanted:
                candidates[folded] = known
            if len(candidates) >= NEAR_CANDIDATES:
                break
        return tuple(candidates[near] for near in difflib.get_close_matches(wanted, candidates, limit, 0.5))

    def _known_names(self, patterns: tuple[str, ...] | None) -> Iterable[str]:
        yield from (name for name in self.models if model_allowed(patterns, name))
        for alias in self.aliases.values():
            if any(model_allowed(patterns, target) for target, _ in alias.targets):
                yield alias.name


def from_snapshot(snapshot: Snapshot, defaults: HttpTimeouts, before: Table | None = None) -> Table:
    """The table a snapshot describes; `defaults` are the timeouts of models that set none.

    Of the table `before` it keeps the endpoints on nodes that the control plane has not heard: their
    engines go on while a new server waits for the agents.
    """
    named = {entry.id: entry for entry in snapshot.endpoints}
    kept: dict[str, EndpointEntry] = {}
    if before is not None and before.cluster_id == snapshot.cluster_id:
        kept = {
            id: entry
            for id, entry in before.endpoints.items()
            if id not in named and entry.node in snapshot.unheard
        }
    return Table(
        revision=snapshot.revision,
        cluster_id=snapshot.cluster_id,
        models={entry.name: _served(entry, defaults) for entry in snapshot.models},
        aliases={entry.name: entry for entry in snapshot.aliases},
        endpoints=kept | named,
        keys={entry.public_id: entry for entry in snapshot.keys},
        kept=frozenset(kept),
    )


def updated(table: Table, update: Update, defaults: HttpTimeouts) -> Table:
    """The table after an update; the old one is untouched."""
    changed = {entry.name: _served(entry, defaults) for entry in update.models}
    named = {entry.id: entry for entry in update.endpoints}
    kept = frozenset(id for id in table.kept if id not in named and _unheard(table, id, update))
    dropped = [id for id in table.kept if id not in named and id not in kept]
    return Table(
        revision=update.revision,
        cluster_id=table.cluster_id,
        models=_merged(table.models, changed, update.gone_models),
        aliases=_merged(table.aliases, {entry.name: entry for entry in update.aliases}, update.gone_aliases),
        endpoints=_merged(table.endpoints, named, (*update.gone_endpoints, *dropped)),
        keys=_merged(table.keys, {entry.public_id: entry for entry in update.keys}, update.gone_keys),
        kept=kept,
    )


def _unheard(table: Table, id: str, update: Update) -> bool:
    return update.unheard is None or table.endpoints[id].node in update.unheard


def opaque_replica(cluster_id: str, endpoint: str) -> bytes:
    """A name for a replica that tells nothing but whether two answers came from the same one."""
    return hashlib.sha256(f"{cluster_id}/{endpoint}".encode()).hexdigest()[:12].encode()


def _merged(old: Mapping[str, E], changed: Mapping[str, E], gone: Sequence[str]) -> Mapping[str, E]:
    if not changed and not gone:
        return old
    merged = dict(old) | dict(changed)
    for id in gone:
        merged.pop(id, None)
    return merged


def _served(entry: ModelEntry, defaults: HttpTimeouts) -> Served:
    own = entry.timeouts
    return Served(
        entry=entry,
        timeouts=HttpTimeouts(
            connect=own.get("connect", defaults.connect),
            first_byte=own.get("first_byte", defaults.first_byte),
            idle=own.get("idle", defaults.idle),
            total=own.get("total", defaults.total),
        ),
        # A header holds visible ASCII only; a name may hold more.
        header=(b"x-llmgw-model", quote(entry.name, safe="/:@+._-").encode()),
    )


class Current:
    """Which table is in force, and how the control plane is connected. Written by the watch alone."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.connected = False
        self.trouble = "not connected yet"  # why it is not connected
        self.draining = False
