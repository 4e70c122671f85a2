"""Takes what roles log into the trace of a run, and what they report as failed into its broken promises.

Laws: nothing of a simulated run reaches the real log; a failure reported by `aio.tasks` was expected by
nobody, so it breaks the run.
"""

import contextlib
import logging
import re
from collections.abc import Iterator

from llmgw.sim.network import current_host
from llmgw.sim.world import World

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


class _IntoTrace(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        text = record.getMessage()
        host = current_host.get()
        short = record.name.removeprefix("llmgw.")
        self._world.note("log", f"[{host}] {short}: {text}", *_NAME.findall(text))
        if record.name == "llmgw.tasks":
            self._world.fail("no_failure", f"[{host}] {text}", *_NAME.findall(text))


@contextlib.contextmanager
def journal(world: World) -> Iterator[None]:
    """While it lasts, logs go into the trace of this world."""
    logger = logging.getLogger("llmgw")
    handler, level, propagate = _IntoTrace(world), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
