"""What counts as a change of the node."""

import msgspec

from llmgw.agent.node import NodeView, lasting
from llmgw.core.inventory import Filesystem, Gpu, NodeReport
from tests.agent.node import FixedProbe

NODE = NodeReport(
    id="n",
    address="10.0.0.1",
    memory_total_bytes=100,
    memory_available_bytes=50,
    gpus=(Gpu(0, memory_total_bytes=80, memory_used_bytes=1, utilisation=0.1),),
    filesystems=(Filesystem("/", 1000, 900),),
)


def test_what_heartbeats_carry_is_no_lasting_change() -> None:
    busy = msgspec.structs.replace(
        NODE,
        memory_available_bytes=1,
        ports_in_use=(1,),
        gpus=(Gpu(0, memory_total_bytes=80, memory_used_bytes=70, utilisation=1.0),),
        filesystems=(Filesystem("/", 1000, 3),),
    )
    assert lasting(busy) == lasting(NODE)


async def test_new_hardware_is_told_once() -> None:
    probe = FixedProbe(NODE)
    view = NodeView(probe)
    await view.look()
    told: list[NodeReport] = []
    await view.look_again(told.append)
    assert told == []
    probe.found = msgspec.structs.replace(NODE, memory_total_bytes=200)
    await view.look_again(told.append)
    await view.look_again(told.append)
    assert told == [probe.found] and view.report == probe.found
