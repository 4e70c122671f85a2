"""Decides what routers are told: the whole table they serve from, and what differs between two of them.

Laws: the table is derived from the fleet and the keys whenever it is needed; an update carries only
what differs, so that a thousand models cost nothing while one endpoint changes.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from llmgw.control import translate
from llmgw.core.fleet_state import FleetState, unheard
from llmgw.wire import watch_v1

E = TypeVar("E")


class Table(msgspec.Struct, frozen=True):
    """All a router serves, by id."""

    models: Mapping[str, watch_v1.ModelEntry]
    aliases: Mapping[str, watch_v1.AliasEntry]
    endpoints: Mapping[str, watch_v1.EndpointEntry]
    keys: Mapping[str, watch_v1.KeyEntry]
    unheard: frozenset[str] = frozenset()  # nodes of which this server cannot know what they run


def build_table(state: FleetState, keys: Sequence[watch_v1.KeyEntry], created: int, now: float) -> Table:
    """The table at this moment; `created` is shown as the models' creation time."""
    return Table(
        models={entry.name: entry for entry in translate.model_entries(state, created)},
        aliases={entry.name: entry for entry in translate.alias_entries(state.catalog)},
        endpoints={entry.id: entry for entry in translate.endpoint_entries(state)},
        keys={entry.public_id: entry for entry in keys},
        unheard=unheard(state.nodes, state.settings.presence, now),
    )


def snapshot(table: Table, revision: int, cluster_id: str, term: int) -> watch_v1.Snapshot:
    """The whole table as one message."""
    return watch_v1.Snapshot(
        revision=revision,
        cluster_id=cluster_id,
        term=term,
        models=tuple(table.models.values()),
        aliases=tuple(table.aliases.values()),
        endpoints=tuple(table.endpoints.values()),
        keys=tuple(table.keys.values()),
        unheard=tuple(sorted(table.unheard)),
    )


def update(old: Table, new: Table, revision: int) -> watch_v1.Update:
    """What leads from `old` to `new`."""
    return watch_v1.Update(
        revision=revision,
        models=_changed(old.models, new.models),
        aliases=_changed(old.aliases, new.aliases),
        endpoints=_changed(old.endpoints, new.endpoints),
        keys=_changed(old.keys, new.keys),
        gone_models=_gone(old.models, new.models),
        gone_aliases=_gone(old.aliases, new.aliases),
        gone_endpoints=_gone(old.endpoints, new.endpoints),
        gone_keys=_gone(old.keys, new.keys),
        unheard=None if old.unheard == new.unheard else tuple(sorted(new.unheard)),
    )


def _changed(old: Mapping[str, E], new: Mapping[str, E]) -> tuple[E, ...]:
    return tuple(entry for id, entry in new.items() if old.get(id) != entry)


def _gone(old: Mapping[str, E], new: Mapping[str, E]) -> tuple[str, ...]:
    return tuple(id for id in old if id not in new)
