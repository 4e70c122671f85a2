"""Decides what becomes of one request: dial (again), reject, break off, finish, or nothing more to say.

    ASKING -> CHOOSING -> DIALLING -> WAITING -> RELAYING -> ENDED
                 ^___________|___________|

Laws: nothing is dialled after a byte reached the client (a rescue, when it comes, is a transition from
RELAYING to CHOOSING and nothing else changes); dials are bounded; what is the client's own mistake is
never tried twice; every life ends with exactly one of Reject, Break, Finish and Vanish, and nothing
follows it. The table below is all there is: a pair that is in neither NEXT nor NEVER fails a test.
"""

import random
from enum import Enum
from typing import Final

import msgspec

from llmgw.core import defaults
from llmgw.core.refusal import Code, EngineWords, Refuse


class Phase(Enum):
    """How far a request has come."""

    ASKING = "asking"  # authenticated; the body is not understood yet
    CHOOSING = "choosing"  # an endpoint is needed
    DIALLING = "dialling"  # sent, or about to be; no head from the engine
    WAITING = "waiting"  # a good head; nothing has reached the client
    RELAYING = "relaying"  # bytes have reached the client
    ENDED = "ended"

    __hash__ = object.__hash__  # a member is one object; hashing its name is a call, five times a request


class Fault(Enum):
    """What went wrong with one attempt."""

    REFUSED = "refused"  # no connection: nothing was sent
    CUT = "cut"  # the connection ended too early
    SILENT = "silent"  # no head in time
    STALLED = "stalled"  # the head came, then nothing for too long
    OVERDUE = "overdue"  # the request's whole time is spent
    BUSY = "busy"  # 429 or 503
    FAILED = "failed"  # 500 and the like
    ESTRANGED = "estranged"  # 401, 403, 404, another model: this endpoint is not what we think
    LACKING = "lacking"  # this engine does not have what the route needs
    ERROR_FRAME = "error_frame"
    ABORTED = "aborted"  # the engine gave up on the answer
    TRUNCATED = "truncated"  # a stream without its terminator
    MALFORMED = "malformed"
    OVERFLOW = "overflow"  # the prompt is longer than the engine's context
    MISTAKEN = "mistaken"  # 400 and the like: the client's own


class Reaction(msgspec.Struct, frozen=True):
    """What a fault means while nothing has reached the client, and what it is called afterwards."""

    code: Code
    text: str
    elsewhere: bool  # another endpoint may do better
    again: bool  # the same one may, a moment later


_UP = Code.UPSTREAM_ERROR
_LATE = Code.UPSTREAM_TIMEOUT

REACTIONS: Final[dict[Fault, Reaction]] = {
    Fault.REFUSED: Reaction(_UP, "The engine could not be reached.", True, True),
    Fault.CUT: Reaction(_UP, "The engine broke the connection before its answer was whole.", True, True),
    # Not again: it may be working on the prompt, and would then do so twice.
    Fault.SILENT: Reaction(_LATE, "The engine did not begin to answer in time.", True, False),
    Fault.STALLED: Reaction(_LATE, "The engine stopped sending.", True, False),
    Fault.OVERDUE: Reaction(_LATE, "The answer took longer than a request may.", False, False),
    Fault.BUSY: Reaction(
        Code.OVERLOADED, "Every engine of this model is busy; try again in a moment.", True, True
    ),
    Fault.FAILED: Reaction(_UP, "The engine failed on this request; try again.", True, True),
    Fault.ESTRANGED: Reaction(_UP, "The engine does not serve this model as it should.", True, False),
    Fault.LACKING: Reaction(
        Code.UNSUPPORTED, "The engine that serves this model does not have this endpoint.", True, False
    ),
    Fault.ERROR_FRAME: Reaction(_UP, "The engine reported an error.", True, True),
    Fault.ABORTED: Reaction(_UP, "The engine gave up on the answer.", True, True),
    Fault.TRUNCATED: Reaction(_UP, "The engine ended its answer too early.", True, True),
    Fault.MALFORMED: Reaction(_UP, "The engine's answer could not be read.", True, False),
    Fault.OVERFLOW: Reaction(
        Code.CONTEXT_EXCEEDED, "The request is longer than the model's context.", False, False
    ),
    Fault.MISTAKEN: Reaction(Code.INVALID_REQUEST, "The engine refused the request.", False, False),
}

_BUSY: Final = frozenset({429, 503})
_ESTRANGED: Final = frozenset({401, 403, 404, 405, 407, 421})
_LACKING: Final = frozenset({404, 405, 501})
_REQUEST_TIMEOUT: Final = 408  # between the engine and us


def fault_of_status(status: int, *, optional: bool = False) -> Fault | None:
    """What an engine's status means; `None` for a good one. `optional`: not every engine has the route."""
    if 200 <= status < 300:
        return None
    if optional and status in _LACKING:
        return Fault.LACKING
    if status in _BUSY:
        return Fault.BUSY
    if status in _ESTRANGED:
        return Fault.ESTRANGED
    if 400 <= status < 500 and status != _REQUEST_TIMEOUT:
        return Fault.MISTAKEN
    return Fault.FAILED


# ---------------------------------------------------------------- what happens


class Asked(msgspec.Struct, frozen=True):
    """The body was read and names a model the key may use."""


class Refused(msgspec.Struct, frozen=True):
    """It cannot be done, and no engine had a part in it."""

    refuse: Refuse


class Chosen(msgspec.Struct, frozen=True):
    """An endpoint was chosen and its permit is held."""

    endpoint: str


class NoneLeft(msgspec.Struct, frozen=True):
    """No endpoint may be dialled; `refuse` says why there was none to begin with."""

    refuse: Refuse


class HeadArrived(msgspec.Struct, frozen=True):
    """The engine's head came, with a good status."""


class FirstOut(msgspec.Struct, frozen=True):
    """The head and the first bytes of the answer go to the client now."""


class Completed(msgspec.Struct, frozen=True):
    """The answer is whole."""


class Faulted(msgspec.Struct, frozen=True):
    """The attempt at hand failed. `retry_after_s` and `engine` are the engine's own words."""

    fault: Fault
    detail: str = ""  # for logs and the usage row, never for the client
    retry_after_s: float | None = None
    message: str | None = None  # of the engine, for the client whose mistake it is
    param: str | None = None
    engine: EngineWords | None = None


class ClientLeft(msgspec.Struct, frozen=True):
    """The client closed its connection."""


Event = Asked | Refused | Chosen | NoneLeft | HeadArrived | FirstOut | Completed | Faulted | ClientLeft

# ---------------------------------------------------------------- what is to be done


class GoOn(msgspec.Struct, frozen=True):
    """Nothing to decide."""


class Dial(msgspec.Struct, frozen=True):
    """Choose an endpoint: none of `barred`, rather none of `tried`; before one of those, wait `pause_s`."""

    tried: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    pause_s: float = 0.0


class Switch(msgspec.Struct, frozen=True):
    """Go on with a fallback model, `places` further in their list, and choose an endpoint of it."""

    places: int = 1


class Reject(msgspec.Struct, frozen=True):
    """Answer with this error; nothing has been sent yet."""

    refuse: Refuse


class Break(msgspec.Struct, frozen=True):
    """Something was sent: end with an error frame where the answer is a stream, and close."""

    refuse: Refuse


class Finish(msgspec.Struct, frozen=True):
    """End the answer as HTTP says."""


class Vanish(msgspec.Struct, frozen=True):
    """Nobody is there to be answered."""


Outcome = GoOn | Dial | Switch | Reject | Break | Finish | Vanish

# ---------------------------------------------------------------- the machine


class Policy(msgspec.Struct, frozen=True):
    """Bounds on trying again. Seconds."""

    retries: int = defaults.RETRIES
    backoff_s: float = 0.1  # before the same endpoint, spread by half
    pause_max_s: float = 2.0  # a longer Retry-After is passed on instead of waited for


class Case(Enum):
    """What a fallback model is for (G11)."""

    UNAVAILABLE = "unavailable"
    CONTEXT = "context"


class Life(msgspec.Struct, frozen=True):
    """One request so far."""

    phase: Phase = Phase.ASKING
    dials: int = 0
    endpoint: str | None = None  # of the attempt at hand, or the last
    tried: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    last: Refuse | None = None  # what the last failed attempt would be answered with
    spare: tuple[frozenset[Case], ...] = ()  # the fallback models left, in their order: what each is for


# The phase after an event; BY_FAULT where the fault, or what is left, decides.
BY_FAULT: Final = None

NEXT: Final[dict[tuple[Phase, type[Event]], Phase | None]] = {
    (Phase.ASKING, Asked): Phase.CHOOSING,
    (Phase.ASKING, Refused): Phase.ENDED,
    (Phase.ASKING, ClientLeft): Phase.ENDED,
    (Phase.CHOOSING, Chosen): Phase.DIALLING,
    (Phase.CHOOSING, NoneLeft): BY_FAULT,
    (Phase.CHOOSING, ClientLeft): Phase.ENDED,
    (Phase.DIALLING, HeadArrived): Phase.WAITING,
    (Phase.DIALLING, Faulted): BY_FAULT,
    (Phase.DIALLING, ClientLeft): Phase.ENDED,
    (Phase.WAITING, FirstOut): Phase.RELAYING,
    (Phase.WAITING, Faulted): BY_FAULT,
    (Phase.WAITING, ClientLeft): Phase.ENDED,
    (Phase.RELAYING, Completed): Phase.ENDED,
    (Phase.RELAYING, Faulted): Phase.ENDED,
    (Phase.RELAYING, ClientLeft): Phase.ENDED,
}

_NOT_YET: Final = (Chosen, NoneLeft, HeadArrived, FirstOut, Completed, Faulted)
NEVER: Final[frozenset[tuple[Phase, type[Event]]]] = frozenset(
    [(Phase.ASKING, event) for event in _NOT_YET]
    + [(Phase.CHOOSING, event) for event in (Asked, Refused, HeadArrived, FirstOut, Completed, Faulted)]
    + [(Phase.DIALLING, event) for event in (Asked, Refused, Chosen, NoneLeft, FirstOut, Completed)]
    + [(Phase.WAITING, event) for event in (Asked, Refused, Chosen, NoneLeft, HeadArrived, Completed)]
    + [(Phase.RELAYING, event) for event in (Asked, Refused, Chosen, NoneLeft, HeadArrived, FirstOut)]
    + [(Phase.ENDED, event) for event in (Asked, Refused, ClientLeft, *_NOT_YET)]
)


# The same as NEXT, by event; where the fault decides, the phase it leads to when it does not end the life.
_AFTER: Final[dict[type[Event], dict[Phase, Phase]]] = {
    kind: {phase: after or Phase.CHOOSING for (phase, event), after in NEXT.items() if event is kind}
    for kind in (Asked, Refused, ClientLeft, *_NOT_YET)
}


class Impossible(Exception):
    """An event that cannot happen in this phase: a fault of the program."""


def step(life: Life, event: Event, policy: Policy, draw: random.Random) -> tuple[Life, Outcome]:
    """The life after an event, and what is to be done about it. Raises `Impossible`."""
    kind = type(event)
    phase = _AFTER[kind].get(life.phase)
    if phase is None:
        raise Impossible(f"{event!r} while {life.phase.value}")
    settled = _ALWAYS.get(kind)
    if settled is not None:
        return _moved(life, phase), settled
    match event:
        case Faulted():
            return _faulted(life, event, policy, draw)
        case Chosen(endpoint):
            dials = life.dials + 1
            return Life(phase, dials, endpoint, life.tried, life.barred, life.last, life.spare), _GO_ON
        case Refused(refuse):
            return _moved(life, phase), Reject(refuse)
        case NoneLeft(refuse):
            return _given_up(life, life.last or refuse, Case.UNAVAILABLE, policy)
        case _:
            raise AssertionError(f"{event!r} has no outcome")


_GO_ON: Final = GoOn()
# Events that mean the same in every phase they can happen in.
_ALWAYS: Final[dict[type[Event], Outcome]] = {
    Asked: Dial(),
    HeadArrived: _GO_ON,
    FirstOut: _GO_ON,
    Completed: Finish(),
    ClientLeft: Vanish(),
}


def refuse_of(faulted: Faulted) -> Refuse:
    """The error a client sees for a fault."""
    reaction = REACTIONS[faulted.fault]
    # Only words about the client's own request are for the client; others may speak of the inside.
    mine = faulted.fault is Fault.MISTAKEN
    wait_s = None if faulted.retry_after_s is None else max(1, round(faulted.retry_after_s))
    return Refuse(
        reaction.code,
        (faulted.message if mine or faulted.fault is Fault.OVERFLOW else None) or reaction.text,
        faulted.param if mine or faulted.fault is Fault.OVERFLOW else None,
        retry_after_s=wait_s if reaction.code is Code.OVERLOADED else None,
        engine=faulted.engine if mine else None,
    )


def _faulted(life: Life, event: Faulted, policy: Policy, draw: random.Random) -> tuple[Life, Outcome]:
    refuse = refuse_of(event)
    if life.phase is Phase.RELAYING:
        return _moved(life, Phase.ENDED), Break(refuse)
    reaction = REACTIONS[event.fault]
    if event.fault is Fault.OVERFLOW:
        return _given_up(life, refuse, Case.CONTEXT, policy)
    if not reaction.elsewhere:
        return _moved(life, Phase.ENDED), Reject(refuse)
    if life.dials > policy.retries:
        return _given_up(life, refuse, Case.UNAVAILABLE, policy)
    asked_s = event.retry_after_s or 0.0
    failed = life.endpoint or ""
    # The same endpoint gets one more chance, not two.
    again = reaction.again and asked_s <= policy.pause_max_s and failed not in life.tried
    tried = (*life.tried, failed)
    barred = life.barred if again else (*life.barred, failed)
    after = Life(Phase.CHOOSING, life.dials, life.endpoint, tried, barred, refuse, life.spare)
    spread_s = policy.backoff_s * (0.5 + draw.random())
    return after, Dial(tried, barred, max(asked_s, spread_s) if again else spread_s)


def _given_up(life: Life, refuse: Refuse, case: Case, policy: Policy) -> tuple[Life, Outcome]:
    """Nothing more to be had of this model: the next fallback that is for such a case, or the end."""
    for place, cases in enumerate(life.spare):
        if case in cases:
            after = Life(
                Phase.CHOOSING,
                min(life.dials, policy.retries),  # every fallback gets a dial
                last=refuse,
                spare=life.spare[place + 1 :],
            )
            return after, Switch(place + 1)
    return _moved(life, Phase.ENDED), Reject(refuse)


def _moved(life: Life, phase: Phase) -> Life:
    return Life(phase, life.dials, life.endpoint, life.tried, life.barred, life.last, life.spare)
