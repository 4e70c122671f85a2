"""Asks whether a model can take a request before it is relayed: capabilities, then the context (G5).

Laws: nothing is read twice that need not be: a body too small to be too long is not looked into; an
engine is asked to count only near the limit, and when it cannot, the engine decides by itself.
"""

import msgspec

from llmgw.core import demands
from llmgw.core.exchange import Dial
from llmgw.core.refusal import Refuse
from llmgw.gateway.call import JSON
from llmgw.gateway.desk import Desk, Seat
from llmgw.gateway.served_routes import Counts, Relayed
from llmgw.gateway.state import Served
from llmgw.ports import HttpTimeouts, Upstream, UpstreamBroke, UpstreamRequest
from llmgw.wire.prompt import Prompt, most_tokens, needs_of, prompt_of, tokenize_body, tokenized

# Counting is quick, or it is not worth waiting for.
TOKENIZE_TIMEOUTS = HttpTimeouts(connect=1.0, first_byte=2.0, idle=2.0, total=3.0)
TOKENIZED_MAX = 16 * 1024 * 1024  # bytes of an answer that lists every token


class Asking(msgspec.Struct, frozen=True):
    """A request as far as the checks must know it."""

    route: Relayed
    body: bytes


def doubtful(body: bytes, model: Served) -> bool:
    """Whether there is anything to check; for most requests there is not, and they are spared the rest."""
    entry = model.entry
    if entry.capabilities is not None:
        return True
    context = entry.context_length
    return context is not None and demands.judged(most_tokens(body), context) is not demands.Length.FITS


def lacks(asking: Asking, model: Served) -> Refuse | None:
    """The refusal of what a model with written capabilities does not have."""
    entry, route = model.entry, asking.route
    if entry.capabilities is None or route.counts is Counts.NOTHING:
        return None
    if route.capability is not None:
        refuse = demands.lacking(entry.name, entry.capabilities, route.capability, "model")
        if refuse is not None:
            return refuse
    for need in needs_of(asking.body):
        refuse = demands.lacking(entry.name, entry.capabilities, need.capability, need.param)
        if refuse is not None:
            return refuse
    return None


def too_long_for_sure(asking: Asking, model: Served) -> Refuse | None:
    """The refusal of what cannot fit however its tokens are counted."""
    context = model.entry.context_length
    prompt = _long_prompt(asking, context)
    if context is None or prompt is None:
        return None
    estimate = prompt.tokens()
    if demands.judged(estimate, context) is not demands.Length.TOO_LONG:
        return None
    return demands.too_long(model.entry.name, asking.route.param, estimate, context, estimated=True)


async def too_long(asking: Asking, model: Served, desk: Desk, upstream: Upstream) -> Refuse | None:
    """The refusal of what the context does not hold; near the limit an engine is asked."""
    context = model.entry.context_length
    prompt = _long_prompt(asking, context)
    if context is None or prompt is None:
        return None
    name, param, estimate = model.entry.name, asking.route.param, prompt.tokens()
    match demands.judged(estimate, context):
        case demands.Length.FITS:
            return None
        case demands.Length.TOO_LONG:
            return demands.too_long(name, param, estimate, context, estimated=True)
        case demands.Length.UNSURE:
            counted = await _counted(prompt.text, model, desk, upstream)
            if counted is None or counted <= context:
                return None  # what the template adds, and images, the engine counts itself
            return demands.too_long(name, param, counted, context)


def _long_prompt(asking: Asking, context: int | None) -> Prompt | None:
    """The prompt of a request that may be too long; `None`: it is not."""
    if context is None or asking.route.counts is Counts.NOTHING:
        return None
    if demands.judged(most_tokens(asking.body), context) is demands.Length.FITS:
        return None
    return prompt_of(asking.body)


async def _counted(text: str, model: Served, desk: Desk, upstream: Upstream) -> int | None:
    """How many tokens an engine finds in a text; `None` where none can say."""
    seat = desk.choose(model, Dial())
    if not isinstance(seat, Seat) or not text:
        return None
    body = tokenize_body(seat.entry.engine, model.entry.name, text)
    if body is None:
        return None
    request = UpstreamRequest(
        host=seat.entry.host,
        port=seat.entry.port,
        method="POST",
        target=b"/tokenize",
        headers=(JSON, *seat.headers),
        body=body,
        timeouts=TOKENIZE_TIMEOUTS,
    )
    with desk.permit(seat):
        try:
            answer = await upstream.fetch(request, TOKENIZED_MAX)
        except UpstreamBroke:
            return None
    return tokenized(answer.body) if answer.status == 200 else None
