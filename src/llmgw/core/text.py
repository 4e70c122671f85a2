"""Decides what of a foreign text reaches a terminal or a page: words, never commands (S2).

Laws: pure; no control character survives but the tab; what is removed leaves a trace, so that two
different names never print alike because of it.
"""

import re

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|$)"  # OSC and other strings: titles, links, clipboard
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Controls, and marks that reorder or hide the text around them (bidirectional overrides, zero width).
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def printable(text: str) -> str:
    r"""One line without control characters: colour codes vanish, others become `\x07` or `\u202e`."""
    return _CONTROL.sub(lambda found: _visible(found.group()), _ESCAPE_SEQUENCE.sub("", text))


def _visible(character: str) -> str:
    code = ord(character)
    named = {"\n": "\\n", "\r": "\\r"}.get(character)
    return named or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")
