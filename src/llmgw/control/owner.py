"""Owns the fleet: takes events one at a time, performs what each leads to, turns at every tick and on news.

Laws: nothing else touches the fleet (law 2); performing never waits, it queues; one `match` performs
every effect; news that comes while a turn is due costs one turn, not many.
"""

import asyncio
import random
from typing import NamedTuple, Protocol, assert_never

from llmgw.aio.mailbox import Mailbox
from llmgw.core import happenings as h
from llmgw.core.fleet import Fleet
from llmgw.core.fleet_state import FleetState

# Events waiting; agents' streams wait when it is full, which is where a flood of them should wait.
MAILBOX_MAX = 4096

# These tell nothing a decision waits for.
_ROUTINE = (h.AgentHeard, h.FetchProgressed, h.UseReported, h.Ticked)


class Performer(Protocol):
    """What carries out effects; each call queues and returns."""

    def welcome(self, effect: h.WelcomeAgent) -> None: ...

    def refuse(self, effect: h.RefuseAgent) -> None: ...

    def start_shard(self, effect: h.StartShard) -> None: ...

    def stop(self, effect: h.StopShard) -> None: ...

    def forget(self, effect: h.ForgetShard) -> None: ...

    def publish(self, effect: h.Publish) -> None: ...

    def remember(self, effect: h.RememberNode) -> None: ...

    def raise_term(self, effect: h.RaiseTerm) -> None: ...

    def record(self, effect: h.Record) -> None: ...


class _Letter(NamedTuple):
    """An event, and who waits until it has been handled."""

    event: h.Event
    handled: asyncio.Future[None] | None = None


class Owner:
    """The one task that changes the fleet."""

    def __init__(self, fleet: Fleet, draw: random.Random, tick_s: float) -> None:
        self._fleet = fleet
        self._draw = draw
        self._tick_s = tick_s
        self._mailbox: Mailbox[_Letter] = Mailbox(MAILBOX_MAX)
        self.turns = 0

    async def tell(self, event: h.Event) -> None:
        """Queue an event; waits only while the mailbox is full."""
        await self._mailbox.put(_Letter(event))

    async def ask(self, event: h.Event) -> None:
        """Queue an event and wait until it was handled, so that `state` shows what it did."""
        handled = asyncio.get_running_loop().create_future()
        await self._mailbox.put(_Letter(event, handled))
        await handled

    def state(self) -> FleetState:
        """The fleet now."""
        return self._fleet.state(asyncio.get_running_loop().time())

    async def run(self, performer: Performer) -> None:
        """Handle events until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            news = False
            for letter in await self._letters(due):
                self._handle(letter.event, performer)
                news = news or not isinstance(letter.event, _ROUTINE)
                if letter.handled is not None and not letter.handled.done():
                    letter.handled.set_result(None)
            if news or loop.time() >= due:  # also under a flood of routine events
                self.turns += 1
                self._handle(h.Ticked(), performer)
                due = loop.time() + self._tick_s

    async def _letters(self, due: float) -> list[_Letter]:
        """What is in the mailbox, waiting for something until `due`."""
        try:
            async with asyncio.timeout_at(due):
                first = await self._mailbox.get()
        except TimeoutError:
            return []
        return [first, *self._mailbox.take_all()]

    def _handle(self, event: h.Event, performer: Performer) -> None:
        now = asyncio.get_running_loop().time()
        for effect in self._fleet.handle(event, now, self._draw):
            perform(effect, performer)


def perform(effect: h.Effect, performer: Performer) -> None:
    """Carry out one effect."""
    match effect:
        case h.WelcomeAgent():
            performer.welcome(effect)
        case h.RefuseAgent():
            performer.refuse(effect)
        case h.StartShard():
            performer.start_shard(effect)
        case h.StopShard():
            performer.stop(effect)
        case h.ForgetShard():
            performer.forget(effect)
        case h.Publish():
            performer.publish(effect)
        case h.RememberNode():
            performer.remember(effect)
        case h.RaiseTerm():
            performer.raise_term(effect)
        case h.Record():
            performer.record(effect)
        case _:
            assert_never(effect)
