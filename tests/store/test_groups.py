"""Judges the account tree on every database (K1)."""

import random

import pytest
import sqlalchemy as sa

from llmgw.core.accounts import BadName, Group, Level
from llmgw.store import groups
from llmgw.store.groups import AccountRefused
from llmgw.store.tables import AUDIT, PROJECTS, TEAMS
from tests.store.conftest import START, World

ANN = ("ann", "shell")


async def create(world: World, level: Level, path: str, seed: int = 1) -> Group:
    draw = random.Random(f"{seed} {path}")
    return await world.database.write(lambda c: groups.create_group(c, level, path, draw, ANN))


async def paths(world: World, level: Level) -> list[str]:
    found = await world.database.run(lambda c: groups.list_groups(c, level))
    return [group.path for group in found]


async def tree(world: World) -> None:
    await create(world, Level.ORG, "acme")
    await create(world, Level.TEAM, "acme/research")
    await create(world, Level.PROJECT, "acme/research/bot")
    await create(world, Level.USER, "acme/ann")


async def test_a_tree_is_built_from_the_top(world: World) -> None:
    await tree(world)
    assert await paths(world, Level.ORG) == ["acme"]
    assert await paths(world, Level.TEAM) == ["acme/research"]
    assert await paths(world, Level.PROJECT) == ["acme/research/bot"]
    assert await paths(world, Level.USER) == ["acme/ann"]


async def test_what_was_made_is_returned(world: World) -> None:
    made = await create(world, Level.ORG, "acme")
    assert made == Group(made.id, Level.ORG, "acme", START)
    assert made.id.startswith("org-")


async def test_the_same_name_may_be_used_under_another_parent(world: World) -> None:
    await tree(world)
    await create(world, Level.ORG, "umbrella")
    await create(world, Level.TEAM, "umbrella/research")
    assert await paths(world, Level.TEAM) == ["acme/research", "umbrella/research"]


@pytest.mark.parametrize(
    ("level", "path"),
    [(Level.ORG, "acme"), (Level.PROJECT, "acme/research/bot"), (Level.USER, "acme/ann")],
)
async def test_a_name_is_taken_once_within_its_parent(world: World, level: Level, path: str) -> None:
    await tree(world)
    with pytest.raises(AccountRefused, match=f"{path} exists"):
        await create(world, level, path, seed=2)


async def test_two_who_make_the_same_name_do_not_both_succeed(world: World) -> None:
    """The database itself refuses what a forgotten check would let through."""
    await create(world, Level.ORG, "acme")
    twin = sa.text("INSERT INTO orgs (id, name, created_at, disabled) VALUES ('o', 'acme', 0, false)")
    with pytest.raises(sa.exc.IntegrityError):
        await world.database.write(lambda c: c.execute(twin))


async def test_without_its_parent_nothing_is_made_and_the_way_is_said(world: World) -> None:
    with pytest.raises(AccountRefused, match="no org acme; make it with: llmgw keys org create acme"):
        await create(world, Level.TEAM, "acme/research")
    assert await paths(world, Level.TEAM) == []


async def test_a_bad_path_is_refused(world: World) -> None:
    with pytest.raises(BadName):
        await create(world, Level.TEAM, "acme")


async def test_what_lies_below_a_deleted_group_is_gone_and_its_name_is_free(world: World) -> None:
    await tree(world)
    await world.database.write(lambda c: c.execute(sa.update(TEAMS).values(deleted_at=1.0)))
    assert await paths(world, Level.PROJECT) == []
    await create(world, Level.TEAM, "acme/research", seed=2)
    assert await paths(world, Level.TEAM) == ["acme/research"]
    assert await paths(world, Level.PROJECT) == []


async def test_a_group_is_disabled_by_what_is_above_it(world: World) -> None:
    await tree(world)
    await world.database.write(lambda c: c.execute(sa.update(TEAMS).values(disabled=True)))
    found = await world.database.run(lambda c: groups.list_groups(c, Level.PROJECT))
    assert [group.disabled for group in found] == [True]


async def test_every_change_moves_the_revision_and_is_in_the_audit_log(world: World) -> None:
    await create(world, Level.ORG, "acme")
    before = await world.store().key_revision()
    await create(world, Level.TEAM, "acme/research")
    assert await world.store().key_revision() == before + 1
    log = await world.database.run(lambda c: c.execute(sa.select(AUDIT).order_by(AUDIT.c.id)).all())
    assert [(row.actor, row.source, row.action, row.target) for row in log] == [
        ("ann", "shell", "org create", "acme"),
        ("ann", "shell", "team create", "acme/research"),
    ]


async def test_a_refused_change_moves_no_revision(world: World) -> None:
    before = await world.store().key_revision()
    with pytest.raises(AccountRefused):
        await create(world, Level.TEAM, "acme/research")
    assert await world.store().key_revision() == before


async def test_the_default_project_is_completed_when_only_its_organisation_is_there(world: World) -> None:
    await create(world, Level.ORG, "default")
    made = await world.database.write(lambda c: groups.ensure_default_project(c, random.Random(1)))
    assert made.path == groups.DEFAULT_PROJECT
    count = sa.select(sa.func.count()).select_from(PROJECTS)
    assert await world.database.run(lambda c: c.scalar(count)) == 1
