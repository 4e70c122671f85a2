"""Log lines on their way: bounded, said when lost, ended with a reason."""

from llmgw.aio.tasks import Tasks
from llmgw.control.logs import LINES_MAX, LogChannel


async def read(channel: LogChannel) -> list[str]:
    return [line async for line in channel]


async def test_lines_come_in_order_and_the_end_ends() -> None:
    channel = LogChannel(lambda: None)
    channel.give(("a", "b"))
    channel.give(("c",))
    channel.end(None)
    assert await read(channel) == ["a", "b", "c"]


async def test_a_reader_waits_for_lines_that_are_not_there_yet() -> None:
    channel = LogChannel(lambda: None)
    async with Tasks() as tasks:
        reading = tasks.start(read(channel), name="read")
        channel.give(("late",))
        channel.end("its node disconnected")
        assert await reading == ["late", "[its node disconnected]"]


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many() -> None:
    channel = LogChannel(lambda: None)
    channel.give([str(number) for number in range(LINES_MAX + 7)])
    channel.end(None)
    lines = await read(channel)
    assert lines[0] == "[7 lines skipped: the reader was too slow]"
    assert lines[1] == "7"
    assert len(lines) == LINES_MAX + 1


async def test_a_reader_that_leaves_has_the_node_stop_once() -> None:
    left: list[bool] = []
    channel = LogChannel(lambda: left.append(True))
    await channel.aclose()
    await channel.aclose()
    assert left == [True]
    ended = LogChannel(lambda: left.append(True))
    ended.end(None)
    await ended.aclose()
    assert left == [True], "what ended by itself needs no word to the node"
