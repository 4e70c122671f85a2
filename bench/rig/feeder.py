"""Plays the control plane for one router: one key, one model, its endpoints; takes the usage rows.

It speaks the real watch stream, so that the router under measurement is the one that is shipped, with
accounting on. Rows are acknowledged at once and counted.
"""

import asyncio

from llmgw.core.accounts import FreshKey
from llmgw.ports import MessageStream
from llmgw.wire import watch_v1 as watch

MODEL = "mock"


class Feeder:
    """The handler of a watch stream."""

    def __init__(self, ports: tuple[int, ...], key: FreshKey) -> None:
        """`ports`: where engines answer on 127.0.0.1."""
        self._ports = ports
        self._key = key
        self._applied = asyncio.Event()
        self._address: str | None = None
        self.rows_stored = 0
        self.rows_lost = 0

    async def serving(self) -> str:
        """Wait until the router serves what it was given; where it listens."""
        await self._applied.wait()
        assert self._address is not None, "a router says where it listens before anything else"
        return self._address

    async def __call__(self, stream: MessageStream) -> None:
        """One stream, until it ends."""
        while True:
            message = watch.decode_up(await stream.receive())
            match message:
                case watch.Hello():
                    self._address = message.address
                    await stream.send(watch.encode(self.snapshot()))
                case watch.Applied():
                    self._applied.set()
                case watch.UsageBatch():
                    self.rows_stored += len(message.rows)
                    self.rows_lost = message.dropped
                    await stream.send(watch.encode(watch.UsageStored(message.batch)))
                case _:
                    pass

    def snapshot(self) -> watch.Snapshot:
        """What the router shall serve."""
        endpoints = tuple(
            watch.EndpointEntry(f"{MODEL}-{number}", MODEL, "127.0.0.1", port)
            for number, port in enumerate(self._ports)
        )
        key = watch.KeyEntry(
            self._key.public_id,
            self._key.secret_sha256,
            "key-bench",
            project="bench",
            team="bench",
            org="bench",
        )
        return watch.Snapshot(
            revision=1,
            cluster_id="bench",
            term=1,
            models=(watch.ModelEntry(MODEL, "always"),),
            endpoints=endpoints,
            keys=(key,),
        )
