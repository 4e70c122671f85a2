"""Keeps what is known of this node: looked at once when the agent starts, then every minute (A3, A6).

Laws: one owner of the last report; only lasting changes are news (memory in use and free disk travel
with heartbeats); a look that fails keeps what was known.
"""

from collections.abc import Callable

import msgspec

from llmgw.core.inventory import Gpu, NodeReport
from llmgw.ports import NodeProbe


class NodeView:
    """The last whole report of this node."""

    def __init__(self, probe: NodeProbe) -> None:
        self._probe = probe
        self._report: NodeReport | None = None

    @property
    def report(self) -> NodeReport:
        """What was last found; `look` was awaited before."""
        assert self._report is not None, "the node was never looked at"
        return self._report

    async def look(self) -> None:
        """Look for the first time."""
        self._report = await self._probe.report()

    async def look_again(self, changed: Callable[[NodeReport], None]) -> None:
        """Look anew; `changed` is told when something lasting is different."""
        found = await self._probe.report()
        before, self._report = self._report, found
        if before is None or lasting(before) != lasting(found):
            changed(found)


def lasting(report: NodeReport) -> NodeReport:
    """A report without what changes from moment to moment."""
    filesystems = report.filesystems
    return msgspec.structs.replace(
        report,
        memory_available_bytes=None,
        ports_in_use=None,
        gpus=None if report.gpus is None else tuple(_lasting_gpu(gpu) for gpu in report.gpus),
        filesystems=None
        if filesystems is None
        else tuple(msgspec.structs.replace(one, free_bytes=None) for one in filesystems),
    )


def _lasting_gpu(gpu: Gpu) -> Gpu:
    return msgspec.structs.replace(
        gpu, memory_used_bytes=None, utilisation=None, foreign=None, ecc_uncorrected=None
    )
