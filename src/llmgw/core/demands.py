"""Decides whether a model can take what a request demands: capabilities and context (G5).

Laws: what nobody wrote refuses nothing; an estimate refuses only what is far too long, and what is near
the limit is counted by an engine or left to it; a refusal names what was needed and what there is.
"""

from collections.abc import Collection
from enum import Enum

from llmgw.core.refusal import Code, Refuse

MARGIN = 1.1  # an estimate is believed to be wrong by a tenth
CERTAIN = 2.0  # times the context: too long however the tokens are counted


class Length(Enum):
    """What an estimate says of a prompt."""

    FITS = "fits"
    UNSURE = "unsure"
    TOO_LONG = "too_long"


def judged(estimate: int, context: int) -> Length:
    """What is to be thought of a prompt of about `estimate` tokens."""
    if estimate * MARGIN <= context:
        return Length.FITS
    return Length.TOO_LONG if estimate > context * CERTAIN else Length.UNSURE


def too_long(model: str, param: str, counted: int, context: int, *, estimated: bool = False) -> Refuse:
    """The refusal of a prompt that the context of the model does not hold."""
    about = "about " if estimated else ""
    text = f"{param} has {about}{counted} tokens, and the context of {model!r} holds {context}; send less."
    return Refuse(Code.CONTEXT_EXCEEDED, text, param)


def lacking(model: str, capabilities: Collection[str] | None, capability: str, param: str) -> Refuse | None:
    """The refusal of a need that a model with these capabilities does not meet; `None`: it does."""
    if capabilities is None or capability in capabilities:
        return None
    has = ", ".join(capabilities) or "none"
    text = f"The model {model!r} does not have the capability {capability!r}; it has: {has}."
    if param == "model":
        return Refuse(Code.UNSUPPORTED, f"{text} Ask for another model.", param)
    return Refuse(Code.UNSUPPORTED, f"{text} Leave `{param}` out or ask for another model.", param)
