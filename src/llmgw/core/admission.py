"""Decides whether a request for a model may be sent now, and where, or which refusal tells why not.

Laws: pure; a known model is never "not found"; a refusal says what the model is waiting for and what
would change it (G4); off speaks of placement only, so whatever has an endpoint is served.
"""

import math
from collections.abc import Collection, Sequence
from typing import Protocol

from llmgw.core.catalog import Mode
from llmgw.core.refusal import Code, Refuse
from llmgw.core.routing import L, least_loaded

LOADING_RETRY_S = 5  # a starting replica is looked at about as often as it reports


class Standing(Protocol):
    """A model as far as a refusal must know it."""

    @property
    def name(self) -> str: ...

    @property
    def mode(self) -> str:
        """A `core.catalog.Mode` value."""
        ...

    @property
    def starting(self) -> bool:
        """Whether a replica is on its way."""
        ...

    @property
    def reason(self) -> str | None:
        """Why nothing can serve it now, if that is known."""
        ...


def admit(
    model: Standing,
    loads: Sequence[L],
    *,
    tried: Collection[str] = (),
    barred: Collection[str] = (),
    turn: int = 0,
) -> L | Refuse:
    """The endpoint to use, or why there is none.

    `tried` endpoints failed this request and come last, `barred` ones do not come at all.
    """
    chosen = least_loaded(loads, tried, turn) if tried else least_loaded(loads, barred, turn)
    if chosen is None and tried:
        chosen = least_loaded(loads, barred, turn)
    return chosen if chosen is not None else refusal(model)


def resting(model: Standing, wait_s: float, *, busy: bool) -> Refuse:
    """Why a model is not served although it has endpoints: they failed, or are busy, and are left alone.

    `wait_s`: until the first of them may be asked again.
    """
    wait = max(1, math.ceil(wait_s))
    if busy:
        text = f"Every engine of {model.name!r} asked for a pause; try again in {wait} s."
        return Refuse(Code.OVERLOADED, text, "model", retry_after_s=wait)
    text = f"Every engine of {model.name!r} keeps failing; the next attempt is in {wait} s."
    return Refuse(Code.NO_ENDPOINT, text, "model", retry_after_s=wait)


def refusal(model: Standing) -> Refuse:
    """Why a model without an endpoint cannot be served."""
    why = f" ({model.reason})" if model.reason else ""
    if model.starting:
        text = f"The model {model.name!r} is loading{why}; try again in a few seconds."
        return Refuse(Code.MODEL_LOADING, text, "model", retry_after_s=LOADING_RETRY_S)
    if model.mode == Mode.OFF.value:
        text = f"The model {model.name!r} is off; an operator can give it replicas."
        return Refuse(Code.MODEL_OFF, text, "model")
    why = model.reason or "no replica is ready"
    return Refuse(Code.NO_ENDPOINT, f"Nothing can serve the model {model.name!r} now: {why}.", "model")
