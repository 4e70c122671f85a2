"""Writes what `llmgw up` says: lines that stay, and on a terminal one line that changes in place.

Law: a line that stays never mixes with the changing one, and a pipe gets each change once, as a line.
"""

import shutil
from typing import TextIO

from llmgw.core.text import printable

CLEAR = "\r\x1b[K"


class Screen:
    """The output of one `up`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._line = ""

    def say(self, text: str) -> None:
        """Print lines that stay."""
        self._out.write(f"{CLEAR if self._terminal else ''}{text}\n")  # also over the terminal's own ^C
        if self._terminal and self._line:
            self._draw("")
        self._out.flush()

    def progress(self, text: str, since_s: float) -> None:
        """Show how far it is; on a terminal with the seconds it has taken."""
        if self._terminal:
            self._line = printable(text)
            self._draw(f" ({since_s:.0f} s)")
            self._out.flush()
        elif text != self._line:
            self._line = text
            self.say(f"{printable(text)} …")

    def end_progress(self) -> None:
        """Take the changing line away."""
        if self._terminal and self._line:
            self._out.write(CLEAR)
            self._out.flush()
        self._line = ""

    def _draw(self, tail: str) -> None:
        room = max(20, shutil.get_terminal_size().columns - 1)
        self._out.write(CLEAR + (self._line + tail)[:room])
