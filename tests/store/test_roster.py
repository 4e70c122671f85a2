"""Judges the roster of nodes and the operator's marks, on every database (I2, R10)."""

from llmgw.core.inventory import Mark, OperatorMark
from llmgw.ports import RosterRow
from llmgw.store.statements import ROSTER_TOPIC, revision
from tests.store.conftest import World

DRAIN = OperatorMark(Mark.DRAINING, "new fans", "ann", 5.0)


async def test_a_node_seen_once_is_remembered_without_a_mark(world: World) -> None:
    await world.store().remember_node("n1", "10.0.0.1")
    assert await world.store().roster() == (RosterRow("n1", OperatorMark(), "10.0.0.1"),)


async def test_nodes_come_in_order_of_id(world: World) -> None:
    """The same order everywhere: a database's own depends on its language."""
    for node in ("n2", "n10", "N3", "n1"):
        await world.store().remember_node(node, None)
    assert [row.node_id for row in await world.store().roster()] == ["N3", "n1", "n10", "n2"]


async def test_a_mark_stays_when_the_node_reports_again(world: World) -> None:
    await world.store().remember_node("n1", "10.0.0.1")
    await world.store().set_mark("n1", DRAIN)
    await world.store().remember_node("n1", "10.0.0.2")
    assert await world.store().roster() == (RosterRow("n1", DRAIN, "10.0.0.2"),)


async def test_a_node_may_be_marked_before_it_was_ever_seen(world: World) -> None:
    await world.store().set_mark("n1", DRAIN)
    assert await world.store().roster() == (RosterRow("n1", DRAIN, None),)


async def test_a_mark_is_replaced_by_the_next(world: World) -> None:
    await world.store().set_mark("n1", DRAIN)
    await world.store().set_mark("n1", OperatorMark(Mark.READY, "", "ben", 9.0))
    assert (await world.store().roster())[0].mark == OperatorMark(Mark.READY, "", "ben", 9.0)


async def test_a_forgotten_node_is_gone_with_its_mark(world: World) -> None:
    await world.store().set_mark("n1", DRAIN)
    await world.store().forget_node("n1")
    await world.store().remember_node("n1", None)
    assert await world.store().roster() == (RosterRow("n1", OperatorMark(), None),)


async def test_a_node_seen_again_unchanged_is_no_change(world: World) -> None:
    await world.store().remember_node("n1", "10.0.0.1")
    before = await world.database.run(lambda c: revision(c, ROSTER_TOPIC))
    await world.store().remember_node("n1", "10.0.0.1")
    assert await world.database.run(lambda c: revision(c, ROSTER_TOPIC)) == before
    await world.store().set_mark("n1", DRAIN)
    assert await world.database.run(lambda c: revision(c, ROSTER_TOPIC)) > before
