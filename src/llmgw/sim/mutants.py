"""Ways to break production code that a run must notice: what the simulator is worth is what these say.

Laws: a mutant removes one guard and nothing else; each is killed by a scenario of its own in the tests,
and by the swarm at a rate `llmgw sim --mutant NAME` prints; the code is whole again afterwards.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from unittest.mock import patch

import msgspec


class Patch(msgspec.Struct, frozen=True):
    """One name of a module, and what to put in its place, made from what was there."""

    module: ModuleType
    name: str
    change: Callable[[object], object]


class Mutant(msgspec.Struct, frozen=True):
    """One way."""

    breaks: str
    patches: tuple[Patch, ...]

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Within it, the code is broken this way."""
        with contextlib.ExitStack() as stack:
            for one in self.patches:
                broken = one.change(getattr(one.module, one.name))
                stack.enter_context(patch.object(one.module, one.name, broken))
            yield


MUTANTS: Mapping[str, Mutant] = MappingProxyType({})
