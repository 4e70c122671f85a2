"""The weather around the database: late, away, or silent after the commit; calm ends it all."""

import asyncio
import random
from collections.abc import Awaitable

import msgspec
import pytest
from sqlalchemy import Connection, text

from llmgw.ports import StoreUnavailable
from llmgw.sim.loop import SimLoop
from llmgw.sim.network import SimNetwork
from llmgw.sim.options import Fault, calm_options
from llmgw.sim.store import Weather
from llmgw.store.inline import InlineDatabase, inline_engine


class Sky:
    """A database under one kind of weather, at its worst."""

    def __init__(self, *faults: Fault) -> None:
        self.loop = SimLoop(SimNetwork(random.Random(1)))
        options = msgspec.structs.replace(calm_options(), faults=dict.fromkeys(faults, 1.0))
        self.struck: list[Fault] = []
        self.weather = Weather(options, random.Random(2), self.struck.append)
        self.engine = inline_engine(self.loop.time)
        self.database = InlineDatabase(self.engine, self.weather)

    def run(self, main: Awaitable[None]) -> None:
        self.loop.run_for(main, 10_000)
        self.loop.finish()
        self.engine.dispose()


def make(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE IF NOT EXISTS t (x INTEGER)"))
    connection.execute(text("INSERT INTO t VALUES (1)"))


def count(connection: Connection) -> int:
    return int(connection.execute(text("SELECT count(*) FROM t")).scalar_one())


def test_a_reply_is_lost_after_the_commit() -> None:
    sky = Sky(Fault.REPLY_LOST)

    async def main() -> None:
        with pytest.raises(StoreUnavailable, match="did not confirm"):
            await sky.database.write(make)
        assert await sky.database.run(count) == 1
        assert sky.struck == [Fault.REPLY_LOST]
        sky.weather.calm = True
        await sky.database.write(make)

    sky.run(main())


def test_a_slow_database_takes_its_time_or_does_nothing_at_all() -> None:
    sky = Sky(Fault.STORE_SLOW)

    async def main() -> None:
        done = refused = 0
        for _ in range(50):
            began = sky.loop.time()
            try:
                await sky.database.write(make)
                done += 1
            except StoreUnavailable:
                refused += 1
            assert sky.loop.time() - began > 0.1
        sky.weather.calm = True
        assert await sky.database.run(count) == done
        assert done and refused

    sky.run(main())


def test_a_database_that_is_away_comes_back() -> None:
    sky = Sky(Fault.STORE_DOWN)

    async def main() -> None:
        refusals = []
        for _ in range(200):
            try:
                await sky.database.write(make)
                refusals.append(False)
            except StoreUnavailable:
                refusals.append(True)
            await asyncio.sleep(1.0)
        assert True in refusals
        assert False in refusals[refusals.index(True) :]

    sky.run(main())
