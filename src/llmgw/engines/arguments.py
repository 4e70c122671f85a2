"""Decides how a profile's `args` become an engine's command line (E7).

Laws: a list of arguments, never a shell string; a name is written with or without dashes, `_` counts
as `-`; `true` is the bare flag, `false` its `--no-` form, nothing (`null`) leaves the option out, a
list repeats it; order is the order written.
"""

from collections.abc import Mapping
from typing import assert_never

from llmgw.core.catalog import ArgValue

_NONE: Mapping[str, str] = {}


def plain_name(name: str, long_names: Mapping[str, str] = _NONE) -> str:
    """An argument's one name: no leading dashes, `_` as `-`, a known short form made long."""
    plain = name.lstrip("-").replace("_", "-")
    return long_names.get(plain, plain)


def plain_args(args: Mapping[str, ArgValue], long_names: Mapping[str, str] = _NONE) -> dict[str, ArgValue]:
    """Arguments under their one name; of two spellings of one option the later wins."""
    return {plain_name(name, long_names): value for name, value in args.items()}


def command_line(args: Mapping[str, ArgValue]) -> tuple[str, ...]:
    """The arguments of plain names as a command line."""
    return tuple(part for name, value in args.items() for part in _option(name, value))


def _option(name: str, value: ArgValue) -> tuple[str, ...]:
    flag = f"--{name}"
    match value:
        case None:
            return ()
        case True:
            return (flag,)
        case False:
            return (f"--no-{name}",)
        case list():
            return tuple(part for item in value for part in (flag, str(item)))
        case str() | int() | float():
            return (flag, str(value))
        case _:
            assert_never(value)
