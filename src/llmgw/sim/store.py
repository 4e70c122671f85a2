"""Puts weather around the server's database: the same queries, slow, refused, or answered too late.

Laws: a transaction happened whole or not at all, whatever its caller was told; a database that is away
harms nothing that is in it.
"""

import asyncio
import random
from collections.abc import Callable

from llmgw.ports import StoreUnavailable
from llmgw.sim.options import Fault, Options
from llmgw.store.database import TRANSACTION_S
from llmgw.store.inline import Kind

_QUICK_S = 0.001
_AWAY_S = (0.5, 20.0)
_BEGINS_TO_BE_AWAY = 0.1  # of the chance the options give, for each transaction


class Weather:
    """`store.inline.Hooks` for the database of one cluster, over all its servers."""

    def __init__(self, options: Options, draw: random.Random, struck: Callable[[Fault], None]) -> None:
        self._options = options
        self._draw = draw
        self._struck = struck
        self._away_until = 0.0
        self.calm = False

    async def before(self, kind: Kind) -> None:
        """Take a while, or fail, with nothing done."""
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(_QUICK_S)
        if now >= self._away_until and self._happens(Fault.STORE_DOWN, _BEGINS_TO_BE_AWAY):
            self._away_until = now + self._draw.uniform(*_AWAY_S)
        if now < self._away_until and not self.calm:
            raise StoreUnavailable("the database refused the connection")
        if self._happens(Fault.STORE_SLOW):
            delay = self._draw.uniform(0.1, TRANSACTION_S * 1.2)
            await asyncio.sleep(min(delay, TRANSACTION_S))
            if delay >= TRANSACTION_S:
                raise StoreUnavailable(f"the database did not answer within {TRANSACTION_S:g} s")

    async def after(self, kind: Kind) -> None:
        """Lose the answer of what was committed."""
        if kind is Kind.WRITE and self._happens(Fault.REPLY_LOST):
            await asyncio.sleep(TRANSACTION_S)
            raise StoreUnavailable("the database did not confirm in time")

    def _happens(self, fault: Fault, scale: float = 1.0) -> bool:
        if self.calm or self._draw.random() >= self._options.strength(fault) * scale:
            return False
        self._struck(fault)
        return True
