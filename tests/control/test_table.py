"""The table routers serve from: what an update carries leads from the old table to the new one."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.table import Table, build_table, snapshot, update
from llmgw.wire import watch_v1
from tests.core.replicas import ready
from tests.core.test_reconcile import state
from tests.wire.samples import API_KEY

NAMES = st.sampled_from(["a", "b", "c"])


def endpoint(id: str, port: int) -> watch_v1.EndpointEntry:
    return watch_v1.EndpointEntry(id, "m", "h", port)


TABLES = st.builds(
    Table,
    models=st.dictionaries(NAMES, st.booleans()).map(
        lambda found: {name: watch_v1.ModelEntry(name, "always", starting=on) for name, on in found.items()}
    ),
    aliases=st.dictionaries(NAMES, NAMES).map(
        lambda found: {name: watch_v1.AliasEntry(name, ((to, 1.0),)) for name, to in found.items()}
    ),
    endpoints=st.dictionaries(NAMES, st.integers(1, 3)).map(
        lambda found: {id: endpoint(id, port) for id, port in found.items()}
    ),
    keys=st.dictionaries(NAMES, st.booleans()).map(
        lambda found: {id: watch_v1.KeyEntry(id, "", "", disabled=off) for id, off in found.items()}
    ),
    unheard=st.frozensets(NAMES),
)


@given(TABLES, TABLES)
def test_an_update_leads_from_one_table_to_the_other(old: Table, new: Table) -> None:
    change = update(old, new, 5)
    for held, entries, gone, wanted in (
        (old.models, {one.name: one for one in change.models}, change.gone_models, new.models),
        (old.aliases, {one.name: one for one in change.aliases}, change.gone_aliases, new.aliases),
        (old.endpoints, {one.id: one for one in change.endpoints}, change.gone_endpoints, new.endpoints),
        (old.keys, {one.public_id: one for one in change.keys}, change.gone_keys, new.keys),
    ):
        left = {id: one for id, one in held.items() if id not in gone} | entries
        assert left == wanted
    assert change.revision == 5
    assert frozenset(old.unheard if change.unheard is None else change.unheard) == new.unheard


@given(TABLES)
def test_from_a_table_to_itself_nothing_is_sent(table: Table) -> None:
    assert update(table, table, 2) == watch_v1.Update(2)


def test_the_table_is_derived_from_the_fleet_and_the_keys() -> None:
    serving = ready()
    table = build_table(state(serving), (API_KEY,), 77, 1000.0)
    assert list(table.endpoints) == [serving.id]
    assert (table.endpoints[serving.id].node, table.endpoints[serving.id].engine_key) == ("n1", "key")
    assert table.models["m"].created == 77
    assert list(table.keys) == [API_KEY.public_id]
    whole = snapshot(table, 3, "cluster", 2)
    assert (whole.revision, whole.cluster_id, whole.term, len(whole.endpoints)) == (3, "cluster", 2, 1)
