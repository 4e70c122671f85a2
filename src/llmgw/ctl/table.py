"""Decides how rows are laid out for a person: columns that line up, lines beneath a row, at any width.

Laws: pure; every cell passes through `printable` (S2); no cell is cut, as people copy ids: where the
terminal is too narrow, sentences wrap, then whole columns are left out and the table says which; without
a width (a pipe) everything is there, on one line a row, without colour.
"""

import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Final

import msgspec

from llmgw.core.text import printable

GAP = "  "
NARROWEST = 24  # a sentence is not wrapped below this: it would be a column of single words
INDENT = 4  # of the lines beneath a row

COLOURS: Final = {"good": "\x1b[32m", "busy": "\x1b[33m", "bad": "\x1b[31m", "quiet": "\x1b[2m"}
TONES: Final = {
    "ready": "good",
    "failed": "bad",
    "lost": "bad",
    "unreachable": "bad",
    "orphaned": "bad",
    "waiting": "busy",
    "loading": "busy",
    "starting": "busy",
    "fetching": "busy",
    "stopping": "busy",
    "draining": "busy",
    "cordoned": "busy",
}


class Look(msgspec.Struct, frozen=True):
    """Where text goes: columns of the terminal (None: a pipe or file), and whether it takes colours."""

    width: int | None = None
    colour: bool = False


class Column(msgspec.Struct, frozen=True):
    """A heading; numbers are aligned right, states are coloured, sentences wrap.

    `spare` is how easily the column is left out where there is no room: the highest first, 0 never.
    """

    name: str
    right: bool = False
    state: bool = False
    sentence: bool = False
    spare: int = 0


class Row(msgspec.Struct, frozen=True):
    """One row and the lines beneath it."""

    cells: tuple[str, ...]
    beneath: tuple[str, ...] = ()


def render(columns: Sequence[Column], rows: Sequence[Row], look: Look) -> str:
    """The table as lines, the heading first; no line ends in a space."""
    clean = [Row(tuple(map(printable, row.cells)), tuple(map(printable, row.beneath))) for row in rows]
    natural = [
        max([columns_of(column.name), *(columns_of(row.cells[i]) for row in clean)])
        for i, column in enumerate(columns)
    ]
    kept = _kept(columns, natural, look.width)
    shown = [columns[i] for i in kept]
    widths = _wrapped(shown, [natural[i] for i in kept], look.width)
    lines = [_paint(_line(shown, [c.name for c in shown], widths, look), "quiet", look)]
    for row in clean:
        lines += _row(shown, [row.cells[i] for i in kept], widths, look)
        lines += [_paint(line, "quiet", look) for line in beneath(row.beneath, look)]
    left_out = ", ".join(column.name for i, column in enumerate(columns) if i not in kept)
    if left_out:
        note = f"no room here for {left_out}: widen the terminal, or pipe into `less -S`"
        lines += ["", *(_paint(line, "quiet", look) for line in wrap(note, look.width))]
    return "\n".join(lines)


def beneath(texts: Sequence[str], look: Look) -> list[str]:
    """Indented lines, wrapped to the terminal with their continuation further in."""
    return [line for text in texts for line in wrap(text, look.width, " " * INDENT, " " * (INDENT + 2))]


def wrap(text: str, width: int | None, first: str = "", later: str = "") -> list[str]:
    """A text broken between words to fit `width`, each line behind its indentation."""
    clean = printable(text)
    if width is None or columns_of(first + clean) <= width:
        return [first + clean]
    limit = max(width, 20)
    return textwrap.wrap(clean, limit, initial_indent=first, subsequent_indent=later, break_on_hyphens=False)


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns_of(character) for character in text)


def _columns_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _kept(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    """The columns there is room for, sentences counted as narrow as they may get."""
    kept = list(range(len(columns)))
    if width is None:
        return kept
    least = [min(w, NARROWEST) if c.sentence else w for c, w in zip(columns, natural, strict=True)]
    while sum(least[i] for i in kept) + len(GAP) * (len(kept) - 1) > width:
        spare, i = max((columns[i].spare, i) for i in kept)
        if spare == 0:
            break
        kept.remove(i)
    return kept


def _wrapped(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    """Widths with sentences made as narrow as needed."""
    widths = list(natural)
    if width is None:
        return widths
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
    for i, column in enumerate(columns):
        if column.sentence and excess > 0:
            narrower = max(min(NARROWEST, widths[i]), widths[i] - excess)
            excess -= widths[i] - narrower
            widths[i] = narrower
    return widths


def _row(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], look: Look) -> list[str]:
    pieces = [_pieces(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for level in range(max(map(len, pieces))):
        part = [piece[level] if level < len(piece) else "" for piece in pieces]
        lines.append(_line(columns, part, widths, look))
    return lines


def _pieces(cell: str, width: int) -> list[str]:
    """A cell in pieces that fit, broken between words where there are any."""
    if columns_of(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, width, break_on_hyphens=True) or [""]


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], look: Look) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        space = " " * (width - columns_of(cell))
        shown = _paint(cell, TONES.get(cell.partition(" ")[0], ""), look) if column.state else cell
        parts.append(space + shown if column.right else shown + space)
    return GAP.join(parts).rstrip()


def _paint(text: str, tone: str, look: Look) -> str:
    return f"{COLOURS[tone]}{text}\x1b[0m" if look.colour and tone and text else text


def paint_state(state: str, look: Look) -> str:
    """A state in its colour."""
    return _paint(state, TONES.get(state, ""), look)
