"""Asks endpoints that seemed to be something else whether they are what we think, until they are (G4).

Laws: the first question follows at once, so that a client's odd request costs an endpoint nothing; the
later ones are ever rarer; it ends when the endpoint has proved itself or is withdrawn.
"""

import asyncio
import logging
import random

import msgspec

from llmgw.aio.backoff import Backoff
from llmgw.aio.tasks import Tasks
from llmgw.gateway.desk import Desk, Seat
from llmgw.ports import HttpTimeouts, Upstream, UpstreamBroke, UpstreamRequest

_LOG = logging.getLogger("llmgw.gateway.verify")

AGAIN = Backoff(first=1.0, cap=60.0)
TIMEOUTS = HttpTimeouts(connect=2.0, first_byte=5.0, idle=5.0, total=10.0)
ANSWER_MAX = 256 * 1024


class _Listed(msgspec.Struct, frozen=True):
    id: str = ""


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Listed, ...] = ()


class Verifier:
    """Runs one task for every estranged endpoint."""

    def __init__(self, desk: Desk, upstream: Upstream, tasks: Tasks, draw: random.Random) -> None:
        self._desk = desk
        self._upstream = upstream
        self._tasks = tasks
        self._draw = draw

    def doubt(self, seat: Seat) -> None:
        """Verify this endpoint; once at a time."""
        self._tasks.start(self._verify(seat), name=f"verify {seat.id}")

    async def _verify(self, seat: Seat) -> None:
        failures = 0
        while self._desk.serves(seat):
            why = await self._doubtful(seat)
            if why is None:
                _LOG.info("%s is what it should be and serves again", seat.id)
                self._desk.verified(seat)
                return
            failures += 1
            seat.trouble = why
            _LOG.warning("%s is left out until it proves itself: %s", seat.id, why)
            await asyncio.sleep(AGAIN.delay(failures, self._draw))
        seat.estranged = False  # whoever it is when it comes back

    async def _doubtful(self, seat: Seat) -> str | None:
        """Why the endpoint is not what we think; `None`: it is."""
        entry = seat.entry
        request = UpstreamRequest(
            entry.host, entry.port, "GET", b"/v1/models", seat.headers, b"", timeouts=TIMEOUTS
        )
        try:
            answer = await self._upstream.fetch(request, ANSWER_MAX)
        except UpstreamBroke as broke:
            return broke.reason
        if answer.status != 200:
            return f"answered with status {answer.status}"
        try:
            models = msgspec.json.decode(answer.body, type=_Models)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return "its list of models cannot be read"
        if entry.model not in {one.id for one in models.data}:
            return "serves another model"
        return None
