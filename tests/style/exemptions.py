"""The one list of places where a rule does not hold, each with its reason.

Law: an entry that no longer exempts anything fails the tidy test, so the list only shrinks.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tests.style.rules import Violation


class Exemption(NamedTuple):
    """Lets one rule pass in one file, for what is described by a piece of the violation's text."""

    rule: str
    path: str
    holding: str  # a part of what the violation says; "" for all of the rule in this file
    why: str

    def covers(self, violation: Violation) -> bool:
        """Whether this entry is about that violation."""
        return (self.rule, self.path) == (violation.rule, violation.path) and self.holding in violation.what


EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption("banned", "src/llmgw/sim/guard.py", "", "it names what it makes raise"),
)


def sift(violations: Iterable[Violation], exemptions: Iterable[Exemption]) -> list[Violation]:
    """The violations no entry covers, and one for every entry that covers nothing."""
    found = list(violations)
    left = [v for v in found if not any(entry.covers(v) for entry in exemptions)]
    for entry in exemptions:
        if not any(entry.covers(v) for v in found):
            what = f"the exemption from {entry.rule!r} ({entry.why}) is no longer needed"
            left.append(
                Violation(entry.path, 1, "exemption", what, "remove it from tests/style/exemptions.py")
            )
    return left
