"""Judges what is kept of requests and decisions, on every database (K6, R17)."""

import msgspec
import pytest
import sqlalchemy as sa

from llmgw.store import ledger
from llmgw.store.tables import AUDIT, EVENTS, USAGE
from llmgw.wire.admin_v1 import EventRow
from llmgw.wire.watch_v1 import UsageRow
from tests.store.conftest import START, World

FULL = UsageRow(
    request_id="r-full",
    at=5.5,
    key_id="key-1",
    model_asked="qwen",
    project="project-1",
    team="team-1",
    org="org-1",
    user="user-1",
    model_answered="qwen3",
    replica="qwen-1a2b3c4d",
    endpoint="/v1/chat/completions",
    stream=True,
    prompt_tokens=7,
    completion_tokens=8,
    cached_tokens=0,
    estimated=True,
    status=200,
    error="engine_lost",
    latency_s=1.25,
    first_byte_s=0.25,
    attempts=2,
)


def row(request_id: str) -> UsageRow:
    return UsageRow(request_id=request_id, at=5.0, key_id="key-1", model_asked="m")


async def stored(world: World) -> list[dict[str, object]]:
    query = sa.select(USAGE).order_by(USAGE.c.request_id)
    return await world.database.run(lambda c: [dict(found) for found in c.execute(query).mappings()])


async def test_every_field_of_a_usage_row_is_kept(world: World) -> None:
    await world.store().add_usage([FULL])
    fields = msgspec.structs.asdict(FULL)
    names = {"project": "project_id", "team": "team_id", "org": "org_id", "user": "user_id"}
    expected = {names.get(name, name): value for name, value in fields.items()}
    assert await stored(world) == [expected | {"cost_micro": None}]


async def test_what_is_unknown_is_kept_as_unknown(world: World) -> None:
    await world.store().add_usage([row("r1")])
    kept = (await stored(world))[0]
    assert kept["prompt_tokens"] is None
    assert kept["latency_s"] is None


async def test_a_batch_sent_twice_is_stored_once(world: World) -> None:
    batch = [row(f"r{n}") for n in range(5)]
    await world.store().add_usage(batch)
    await world.store().add_usage([*batch, row("r9")])
    assert [kept["request_id"] for kept in await stored(world)] == ["r0", "r1", "r2", "r3", "r4", "r9"]


async def test_a_row_twice_in_one_batch_is_stored_once(world: World) -> None:
    await world.store().add_usage([row("r1"), row("r1")])
    assert len(await stored(world)) == 1


async def test_a_long_backlog_is_stored_whole_in_short_transactions(world: World) -> None:
    rows = [row(f"r{n:05}") for n in reversed(range(ledger.BATCH_ROWS * 2 + 1))]
    assert [len(batch) for batch in ledger.batches(rows)] == [ledger.BATCH_ROWS, ledger.BATCH_ROWS, 1]
    await world.store().add_usage(rows)
    assert len(await stored(world)) == len(rows)


async def test_no_rows_are_no_write(world: World) -> None:
    await world.store().add_usage([])
    await world.store().add_events([])
    assert await stored(world) == []


@pytest.mark.parametrize("text", ["x" * 100_000, "a\0b", "\ud800", "é" * 300])
async def test_no_text_of_a_client_blocks_a_batch(world: World, text: str) -> None:
    await world.store().add_usage([row("r1"), msgspec.structs.replace(row("r2"), model_asked=text)])
    kept = await stored(world)
    assert len(kept) == 2
    assert 0 < len(str(kept[1]["model_asked"])) <= ledger.NAME_CHARS


@pytest.mark.parametrize("tokens", [2**63, -1, 10**30])
async def test_nonsense_counts_of_an_engine_are_unknown(world: World, tokens: int) -> None:
    await world.store().add_usage([msgspec.structs.replace(row("r1"), prompt_tokens=tokens)])
    assert (await stored(world))[0]["prompt_tokens"] is None


async def test_the_last_events_come_back_newest_first(world: World) -> None:
    await world.store().add_events([EventRow(float(n), "placed", f"event {n}") for n in range(5)])
    await world.store().add_events([EventRow(0.0, "failed", "event 5")])
    assert [event.text for event in await world.store().events(3, None, None)] == [
        "event 5",
        "event 4",
        "event 3",
    ]


async def test_events_are_found_by_model_and_by_node(world: World) -> None:
    placed = EventRow(1.0, "placed", "t", "m1", "m1-1", "n1")
    await world.store().add_events([placed, EventRow(2.0, "placed", "t", "m2", "m2-1", "n1")])
    assert await world.store().events(10, "m1", None) == (placed,)
    assert len(await world.store().events(10, None, "n1")) == 2
    assert await world.store().events(10, "m1", "n2") == ()


async def test_only_the_newest_events_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw.store.ledger.EVENTS_KEPT", 10)
    for n in range(4):
        await world.store().add_events([EventRow(float(n), "k", f"{n}.{m}") for m in range(4)])
    count = sa.select(sa.func.count()).select_from(EVENTS)
    assert await world.database.run(lambda c: c.scalar(count)) == 10
    assert (await world.store().events(100, None, None))[-1].text == "1.2"


async def test_the_audit_log_says_who_did_what_from_where(world: World) -> None:
    await world.database.write(lambda c: ledger.audit(c, ("ann", "shell"), "scale", "qwen", "2 to 3"))
    kept = await world.database.run(lambda c: c.execute(sa.select(AUDIT)).one())
    assert tuple(kept)[1:] == (START, "ann", "shell", "scale", "qwen", "2 to 3")
