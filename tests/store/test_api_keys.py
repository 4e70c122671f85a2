"""Judges API keys on every database: what is kept, what routers are told, what is never kept (K2)."""

import random
from pathlib import Path

import pytest
import sqlalchemy as sa

from llmgw.core import accounts
from llmgw.core.accounts import ApiKey, BadName, FreshKey, Level
from llmgw.store import api_keys, groups
from llmgw.store.api_keys import KeyDraft
from llmgw.store.groups import AccountRefused
from llmgw.store.tables import API_KEYS, KEY_SECRETS, METADATA, ORGS, TEAMS, USERS
from llmgw.wire.watch_v1 import KeyEntry, UsageRow
from tests.store.conftest import START, World

ANN = ("ann", "shell")


async def create(world: World, draft: KeyDraft, seed: int = 1) -> tuple[ApiKey, FreshKey]:
    draw = random.Random(f"{seed} {draft.name}")
    return await world.database.write(lambda c: api_keys.create_key(c, draft, draw, ANN))


async def keys(world: World, project: str | None = None) -> tuple[ApiKey, ...]:
    return await world.database.run(lambda c: api_keys.list_keys(c, project))


async def tree(world: World) -> None:
    draw = random.Random(5)
    for level, path in (
        (Level.ORG, "acme"),
        (Level.TEAM, "acme/research"),
        (Level.PROJECT, "acme/research/bot"),
        (Level.USER, "acme/ann"),
    ):
        await world.database.write(lambda c, a=level, p=path: groups.create_group(c, a, p, draw, ANN))  # type: ignore[misc]


async def test_a_key_is_kept_with_everything_said_of_it(world: World) -> None:
    await tree(world)
    draft = KeyDraft("ci", "acme/research/bot", "acme/ann", 60.0, ("qwen*", "llama"))
    key, fresh = await create(world, draft)
    expected = ApiKey(
        id=key.id,
        name="ci",
        project="acme/research/bot",
        user="acme/ann",
        public_ids=(fresh.public_id,),
        created_at=START,
        expires_at=START + 60.0,
        models=("qwen*", "llama"),
    )
    assert key == expected
    assert await keys(world) == (expected,)


async def test_a_key_without_a_project_belongs_to_the_default_one(world: World) -> None:
    key, _ = await create(world, KeyDraft("ci"))
    assert key.project == groups.DEFAULT_PROJECT
    assert (key.user, key.expires_at, key.models) == (None, None, None)


async def test_routers_are_told_all_they_need_and_the_secret_matches(world: World) -> None:
    await tree(world)
    key, fresh = await create(world, KeyDraft("ci", "acme/research/bot", "acme/ann", 60.0, ("qwen*",)))
    (entry,) = await world.store().keys()
    parsed = accounts.parse_key(fresh.text)
    assert parsed is not None
    assert entry.public_id == parsed[0]
    assert accounts.secret_matches(parsed[1], entry.secret_sha256)
    assert (entry.key_id, entry.expires_at, entry.models) == (key.id, START + 60.0, ("qwen*",))
    assert [value.split("-")[0] for value in (entry.project, entry.team, entry.org, str(entry.user))] == [
        "project",
        "team",
        "org",
        "user",
    ]


async def test_a_key_without_models_allows_all_and_unknown_stays_unknown(world: World) -> None:
    await create(world, KeyDraft("ci"))
    (entry,) = await world.store().keys()
    assert (entry.models, entry.expires_at, entry.user, entry.disabled) == (None, None, None, False)


async def test_the_secret_is_nowhere_in_the_database(world: World) -> None:
    _, fresh = await create(world, KeyDraft("ci"))
    secret = fresh.text.rpartition("-")[2]

    def everything(connection: sa.Connection) -> str:
        return "".join(str(connection.execute(sa.select(table)).all()) for table in METADATA.sorted_tables)

    kept = await world.database.run(everything)
    assert fresh.public_id in kept
    assert secret not in kept


async def test_a_disabled_key_is_still_known_to_routers_as_disabled(world: World) -> None:
    key, _ = await create(world, KeyDraft("ci"))
    changed = await world.database.write(lambda c: api_keys.disable_key(c, key.id, ANN))
    assert changed.disabled
    assert [entry.disabled for entry in await world.store().keys()] == [True]


async def test_a_deleted_key_is_unknown_to_routers_and_kept_for_its_usage(world: World) -> None:
    key, _ = await create(world, KeyDraft("ci"))
    await world.database.write(lambda c: api_keys.delete_key(c, key.id, ANN))
    assert await world.store().keys() == ()
    assert await keys(world) == ()
    count = sa.select(sa.func.count()).select_from(API_KEYS)
    assert await world.database.run(lambda c: c.scalar(count)) == 1


@pytest.mark.parametrize("table", [ORGS, TEAMS, USERS], ids=lambda table: str(table.name))
async def test_what_is_above_a_key_disables_and_deletes_it(world: World, table: sa.Table) -> None:
    await tree(world)
    await create(world, KeyDraft("ci", "acme/research/bot", "acme/ann"))
    await world.database.write(lambda c: c.execute(sa.update(table).values(disabled=True)))
    assert [entry.disabled for entry in await world.store().keys()] == [True]
    await world.database.write(lambda c: c.execute(sa.update(table).values(deleted_at=1.0)))
    assert await world.store().keys() == ()


async def test_every_change_of_a_key_moves_the_revision(world: World) -> None:
    revisions = [await world.store().key_revision()]
    key, _ = await create(world, KeyDraft("ci"))
    revisions.append(await world.store().key_revision())
    for change in (api_keys.disable_key, api_keys.delete_key):
        await world.database.write(lambda c, f=change: f(c, key.id, ANN))  # type: ignore[misc]
        revisions.append(await world.store().key_revision())
    assert revisions == sorted(set(revisions))
    assert len(revisions) == 4


async def test_a_key_is_found_by_id_public_id_or_its_only_name(world: World) -> None:
    key, fresh = await create(world, KeyDraft("ci"))
    await create(world, KeyDraft("other"))
    for reference in (key.id, fresh.public_id, "ci"):
        found = await world.database.run(lambda c, r=reference: api_keys.find_key(c, r))  # type: ignore[misc]
        assert found == key


async def test_a_name_two_keys_have_is_refused_with_their_ids(world: World) -> None:
    first, _ = await create(world, KeyDraft("ci"), seed=1)
    second, _ = await create(world, KeyDraft("ci"), seed=2)
    with pytest.raises(AccountRefused, match=f"2 keys.*({first.id}.*{second.id}|{second.id}.*{first.id})"):
        await world.database.write(lambda c: api_keys.disable_key(c, "ci", ANN))


async def test_an_unknown_key_is_refused(world: World) -> None:
    with pytest.raises(AccountRefused, match="no key 'x'"):
        await world.database.write(lambda c: api_keys.disable_key(c, "x", ANN))


async def test_keys_of_one_project_are_listed_alone(world: World) -> None:
    await tree(world)
    mine, _ = await create(world, KeyDraft("mine", "acme/research/bot"))
    await create(world, KeyDraft("other"))
    assert await keys(world, "acme/research/bot") == (mine,)
    with pytest.raises(AccountRefused, match="no project acme/research/x"):
        await keys(world, "acme/research/x")


async def test_a_user_of_another_organisation_cannot_own_a_key(world: World) -> None:
    await tree(world)
    with pytest.raises(AccountRefused, match="acme/ann is not in the organisation of project default"):
        await create(world, KeyDraft("ci", None, "acme/ann"))
    assert await keys(world) == ()


async def test_a_bad_name_is_refused(world: World) -> None:
    with pytest.raises(BadName):
        await create(world, KeyDraft("a\nb"))


async def test_a_key_with_two_secrets_is_one_key_in_lists_and_two_entries_for_routers(world: World) -> None:
    """Rotation with overlap: the old secret ends by itself."""
    key, fresh = await create(world, KeyDraft("ci", expires_in_s=100.0))
    second = sa.insert(KEY_SECRETS).values(
        public_id="second2222",
        key_id=key.id,
        secret_sha256="b" * 64,
        created_at=START + 1,
        expires_at=START + 9,
    )
    await world.database.write(lambda c: c.execute(second))
    assert [k.public_ids for k in await keys(world)] == [(fresh.public_id, "second2222")]
    entries: dict[str, KeyEntry] = {entry.public_id: entry for entry in await world.store().keys()}
    assert {entry.key_id for entry in entries.values()} == {key.id}
    assert entries[fresh.public_id].expires_at == START + 100.0
    assert entries["second2222"].expires_at == START + 9


async def test_using_a_key_is_noted_coarsely_and_is_no_change_of_it(world: World) -> None:
    key, _ = await create(world, KeyDraft("ci"))
    before = await world.store().key_revision()
    seen = []
    for step, wait in enumerate((0.0, 10.0, 60.0)):
        await world.advance(wait)
        usage = UsageRow(request_id=f"r{step}", at=1.0, key_id=key.id, model_asked="m")
        await world.store().add_usage([usage])
        seen.append((await keys(world))[0].last_used_at)
    assert seen == [START, START, START + 70.0]
    assert await world.store().key_revision() == before


async def test_the_folder_of_a_file_store_holds_no_secret(tmp_path: Path, world: World) -> None:
    _, fresh = await create(world, KeyDraft("ci"))
    secret = fresh.text.rpartition("-")[2].encode()
    assert not _holds(tmp_path, secret)


def _holds(folder: Path, secret: bytes) -> bool:
    return any(secret in file.read_bytes() for file in folder.iterdir())
