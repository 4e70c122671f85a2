"""Children of `llmgw up`: restarted with a line, given up when they never served, stopped in any case."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw.aio.tasks import Tasks
from llmgw.entry.up_children import Child, Children, Ended
from llmgw.entry.up_machine import marked

# A role that ends at once with a line: the client of a server that is not there.
FAILING = ("status", "--server", "http://127.0.0.1:1", "--token-file", "/nowhere")


class Kept:
    """Children with what they said."""

    def __init__(self, folder: Path, tasks: Tasks) -> None:
        self.said: list[str] = []
        self.news: asyncio.Queue[str] = asyncio.Queue()
        self.folder = folder
        self.children = Children(folder, tasks, self._say, random.Random(1))

    def _say(self, text: str) -> None:
        self.said.append(text)
        self.news.put_nowait(text)

    def child(self) -> Child:
        return Child("ctl", FAILING, self.folder / "ctl.log")


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with Tasks() as tasks:
        kept = Kept(tmp_path, tasks)
        yield kept
        kept.children.stopping.set()
        await kept.children.stop("ctl", 5.0, asyncio.Event())
        kept.children.close()


async def test_a_child_that_never_served_is_given_up_with_its_last_words(kept: Kept) -> None:
    kept.children.start(kept.child())
    gave_up = await kept.children.gave_up
    assert re.fullmatch(
        r"the ctl ended with status 2: llmgw ctl: token file /nowhere: .*\(log: .*/ctl.log\)", str(gave_up)
    )
    assert len(kept.said) == 2
    assert all("starting it again (log: " in line for line in kept.said)


async def test_once_it_served_it_is_started_again_for_ever(kept: Kept) -> None:
    kept.children.served = True
    kept.children.start(kept.child())
    for _ in range(3):
        await kept.news.get()
    assert not kept.children.gave_up.done()


async def test_nothing_is_left_after_a_stop(kept: Kept) -> None:
    kept.children.served = True
    kept.children.start(kept.child())
    kept.children.stopping.set()
    await kept.children.stop("ctl", 5.0, asyncio.Event())
    assert marked([{"LLMGW_MARK_UP": str(kept.folder)}]) == {}


def test_a_signal_from_outside_is_not_explained_by_what_the_log_said_before() -> None:
    assert Ended(-9, "INFO all is well").line() == "was ended by SIGKILL"
    assert Ended(-6, "terminate called").line() == "was ended by SIGABRT: terminate called"
    assert Ended(1, "no space left").line() == "ended with status 1: no space left"
