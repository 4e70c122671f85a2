"""Decides what an engine's exit means, from its status and its last lines.

Laws: an exit nobody asked for is a failure, also with status 0 (engines exit 0 after a crash); a known
text beats the status; the sentence says what happened and what to do, the lines travel beside it.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from llmgw.core.reason import Explained, Failure
from llmgw.engines.adapter import Exit

_SIGNALS: Final = {
    4: "an illegal instruction (SIGILL): this build needs CPU features the machine lacks (AVX2, for one)",
    6: "an abort (SIGABRT)",
    7: "a bus error (SIGBUS): its model file may have been cut or replaced while mapped",
    8: "an arithmetic error (SIGFPE)",
    9: "SIGKILL: by hand, or by the kernel for lack of memory (see the kernel log)",
    11: "a segmentation fault (SIGSEGV)",
    15: "SIGTERM from outside llmgw",
}


class Known(msgspec.Struct, frozen=True):
    """A text an engine prints when it fails in a known way, and the sentence for a person.

    What the groups of the pattern caught is put after the sentence.
    """

    code: Failure
    pattern: re.Pattern[str]
    text: str


def explain(engine: str, exit: Exit, known: Sequence[Known]) -> Explained:
    """The first known text in the order of `known`, searched from the newest line; else the status."""
    for entry in known:
        for line in reversed(exit.log_tail):
            found = entry.pattern.search(line)
            if found is None:
                continue
            caught = next((group.strip() for group in found.groupdict().values() if group), "")
            text = f"{entry.text}: {caught}" if caught else entry.text
            return Explained(entry.code, text, exit.log_tail)
    return Explained(Failure.ENGINE_EXITED, f"{engine} {_how(exit.status)}", exit.log_tail)


def _how(status: int | None) -> str:
    if status is None:
        return "ended while it was wanted (it was started by an earlier agent: its exit status is unknown)"
    if status < 0:
        return f"was ended by {_SIGNALS.get(-status, f'signal {-status}')}"
    return f"exited with status {status} while it was wanted"
