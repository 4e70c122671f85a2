"""A request leaves nothing for the garbage collector: its pauses would be the streams' pauses."""

import gc
from pathlib import Path

from tests.gateway.toolkit import rig


async def test_neither_plain_nor_streamed_requests_leave_cycles_of_the_gateway(tmp_path: Path) -> None:
    async with rig(tmp_path) as served:
        for streaming in (False, True):
            await served.chat(stream=streaming)  # what is made once is made now
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                for _ in range(20):
                    await served.chat(stream=streaming)
                gc.collect()
                ours = {type(one).__module__ for one in gc.garbage}
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()
            assert not {name for name in ours if name.startswith(("llmgw.gateway", "llmgw.core"))}
