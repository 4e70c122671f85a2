"""The life of a request: the table is total, and no sequence of events breaks its laws."""

import itertools
import random
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.exchange import (
    NEVER,
    NEXT,
    REACTIONS,
    Asked,
    Break,
    Case,
    Chosen,
    ClientLeft,
    Completed,
    Dial,
    Event,
    Fault,
    Faulted,
    Finish,
    FirstOut,
    GoOn,
    HeadArrived,
    Impossible,
    Life,
    NoneLeft,
    Outcome,
    Phase,
    Policy,
    Refused,
    Reject,
    Switch,
    Vanish,
    fault_of_status,
    step,
)
from llmgw.core.refusal import Code, EngineWords, Refuse

POLICY = Policy()
WHY = Refuse(Code.NO_ENDPOINT, "nothing")


def play(*events: Event, policy: Policy = POLICY) -> tuple[Life, Outcome]:
    draw, life = random.Random(1), Life()
    outcome: Outcome = GoOn()
    for event in events:
        life, outcome = step(life, event, policy, draw)
    return life, outcome


def test_every_pair_of_phase_and_event_is_decided_or_impossible() -> None:
    pairs = set(itertools.product(Phase, get_args(Event)))
    assert set(NEXT) | NEVER == pairs
    assert not set(NEXT) & NEVER


@pytest.mark.parametrize("pair", sorted(NEVER, key=str))
def test_what_cannot_happen_is_a_fault_of_the_program(pair: tuple[Phase, type[Event]]) -> None:
    phase, kind = pair
    made: dict[type[Event], Event] = {
        Asked: Asked(),
        Refused: Refused(WHY),
        Chosen: Chosen("a"),
        NoneLeft: NoneLeft(WHY),
        HeadArrived: HeadArrived(),
        FirstOut: FirstOut(),
        Completed: Completed(),
        Faulted: Faulted(Fault.CUT),
        ClientLeft: ClientLeft(),
    }
    with pytest.raises(Impossible):
        step(Life(phase=phase), made[kind], POLICY, random.Random(1))


def test_a_good_answer_goes_straight_through() -> None:
    life, outcome = play(Asked(), Chosen("a"), HeadArrived(), FirstOut(), Completed())
    assert outcome == Finish() and life.phase is Phase.ENDED and life.dials == 1


def test_retries_are_bounded() -> None:
    def tries(retries: int) -> Outcome:
        policy = Policy(retries=retries)
        return play(Asked(), Chosen("a"), Faulted(Fault.CUT), Chosen("b"), Faulted(Fault.CUT), policy=policy)[
            1
        ]

    assert isinstance(tries(1), Reject) and isinstance(tries(2), Dial)


def test_the_same_endpoint_is_tried_once_more_and_not_twice() -> None:
    _, outcome = play(Asked(), Chosen("a"), Faulted(Fault.CUT), Chosen("a"), Faulted(Fault.CUT))
    assert isinstance(outcome, Dial) and outcome.barred == ("a",)


ONLY_UNAVAILABLE = frozenset({Case.UNAVAILABLE})
ONLY_CONTEXT = frozenset({Case.CONTEXT})


def play_with(spare: tuple[frozenset[Case], ...], *events: Event) -> tuple[Life, Outcome]:
    life = Life(spare=spare)
    outcome: Outcome = GoOn()
    for event in events:
        life, outcome = step(life, event, POLICY, random.Random(1))
    return life, outcome


def test_a_fallback_is_used_when_the_model_has_no_endpoint_left() -> None:
    life, outcome = play_with((ONLY_CONTEXT, ONLY_UNAVAILABLE), Asked(), NoneLeft(WHY))
    assert outcome == Switch(2) and life.phase is Phase.CHOOSING and life.spare == ()
    life, outcome = play_with((ONLY_UNAVAILABLE,), Asked(), NoneLeft(WHY), Chosen("f"), Faulted(Fault.CUT))
    assert isinstance(outcome, Dial) and outcome.tried == ("f",)


def test_when_the_fallbacks_have_nothing_either_the_client_hears_of_the_model_it_asked_for() -> None:
    other = Refuse(Code.MODEL_OFF, "the fallback is off")
    _, outcome = play_with((ONLY_UNAVAILABLE,), Asked(), NoneLeft(WHY), NoneLeft(other))
    assert outcome == Reject(WHY)


def test_a_fallback_gets_a_dial_also_when_the_retries_are_used_up() -> None:
    failures = [event for id in "abc" for event in (Chosen(id), Faulted(Fault.CUT))]
    life, outcome = play_with((ONLY_UNAVAILABLE,), Asked(), *failures)
    assert outcome == Switch(1)
    life, outcome = step(life, Chosen("f"), POLICY, random.Random(1))
    assert outcome == GoOn() and life.dials <= POLICY.retries + 1


def test_too_long_a_prompt_goes_only_to_a_fallback_that_is_for_it_and_other_mistakes_to_none() -> None:
    spare = (ONLY_UNAVAILABLE, ONLY_CONTEXT)
    assert play_with(spare, Asked(), Chosen("a"), Faulted(Fault.OVERFLOW))[1] == Switch(2)
    assert isinstance(play_with(spare[:1], Asked(), Chosen("a"), Faulted(Fault.OVERFLOW))[1], Reject)
    assert isinstance(play_with(spare, Asked(), Chosen("a"), Faulted(Fault.MISTAKEN))[1], Reject)
    assert isinstance(play_with(spare, Asked(), Chosen("a"), Faulted(Fault.OVERDUE))[1], Reject)


def test_a_failure_before_the_first_byte_is_tried_elsewhere_once() -> None:
    _, first = play(Asked(), Chosen("a"), Faulted(Fault.CUT))
    assert isinstance(first, Dial) and first.tried == ("a",) and first.barred == ()
    once = Policy(retries=1)
    _, second = play(
        Asked(), Chosen("a"), Faulted(Fault.CUT), Chosen("b"), HeadArrived(), Faulted(Fault.CUT), policy=once
    )
    assert isinstance(second, Reject) and second.refuse.code is Code.UPSTREAM_ERROR


def test_a_silent_endpoint_is_not_asked_again() -> None:
    _, outcome = play(Asked(), Chosen("a"), Faulted(Fault.SILENT))
    assert isinstance(outcome, Dial) and outcome.barred == ("a",)


def test_when_none_is_left_the_client_hears_of_the_failure_and_not_of_the_lack() -> None:
    _, outcome = play(Asked(), Chosen("a"), Faulted(Fault.SILENT), NoneLeft(WHY))
    assert isinstance(outcome, Reject) and outcome.refuse.code is Code.UPSTREAM_TIMEOUT
    _, outcome = play(Asked(), NoneLeft(WHY))
    assert outcome == Reject(WHY)


def test_after_the_first_byte_nothing_is_dialled() -> None:
    for fault in Fault:
        life, outcome = play(Asked(), Chosen("a"), HeadArrived(), FirstOut(), Faulted(fault))
        assert isinstance(outcome, Break) and life.phase is Phase.ENDED


def test_a_clients_own_mistake_is_never_tried_twice_and_keeps_the_engines_words() -> None:
    words = EngineWords(422, "BadRequestError")
    faulted = Faulted(
        Fault.MISTAKEN, message="temperature must be below 2", param="temperature", engine=words
    )
    _, outcome = play(Asked(), Chosen("a"), faulted)
    assert outcome == Reject(
        Refuse(Code.INVALID_REQUEST, "temperature must be below 2", "temperature", engine=words)
    )


def test_an_engines_words_on_its_own_trouble_stay_inside() -> None:
    faulted = Faulted(Fault.FAILED, message="CUDA error on 10.0.0.7", engine=EngineWords(500, "Internal"))
    _, outcome = play(Asked(), Chosen("a"), faulted, policy=Policy(retries=0))
    assert isinstance(outcome, Reject)
    assert "10.0.0.7" not in outcome.refuse.message and outcome.refuse.engine is None


def test_a_busy_engines_retry_after_is_waited_for_when_short_and_passed_on_when_long() -> None:
    _, short = play(Asked(), Chosen("a"), Faulted(Fault.BUSY, retry_after_s=1.0))
    assert isinstance(short, Dial) and short.pause_s == 1.0 and short.barred == ()
    _, long = play(Asked(), Chosen("a"), Faulted(Fault.BUSY, retry_after_s=20.0))
    assert isinstance(long, Dial) and long.barred == ("a",) and long.pause_s < 1.0
    _, last = play(Asked(), Chosen("a"), Faulted(Fault.BUSY, retry_after_s=20.0), NoneLeft(WHY))
    assert isinstance(last, Reject)
    assert (last.refuse.code, last.refuse.retry_after_s) == (Code.OVERLOADED, 20)


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (200, None),
        (400, Fault.MISTAKEN),
        (401, Fault.ESTRANGED),
        (404, Fault.ESTRANGED),
        (408, Fault.FAILED),
        (413, Fault.MISTAKEN),
        (422, Fault.MISTAKEN),
        (429, Fault.BUSY),
        (500, Fault.FAILED),
        (502, Fault.FAILED),
        (503, Fault.BUSY),
        (504, Fault.FAILED),
        (301, Fault.FAILED),
        (101, Fault.FAILED),
    ],
)
def test_an_engines_status_has_one_meaning(status: int, fault: Fault | None) -> None:
    assert fault_of_status(status) is fault


@pytest.mark.parametrize("status", [404, 405, 501])
def test_what_not_every_engine_has_is_lacking_and_not_estranged(status: int) -> None:
    assert fault_of_status(status, optional=True) is Fault.LACKING
    _, outcome = play(Asked(), Chosen("a"), Faulted(Fault.LACKING), NoneLeft(WHY))
    assert isinstance(outcome, Reject) and outcome.refuse.code is Code.UNSUPPORTED


def test_every_fault_has_its_reaction() -> None:
    assert set(REACTIONS) == set(Fault)
    assert all(reaction.elsewhere or not reaction.again for reaction in REACTIONS.values())


EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Asked),
    st.builds(Refused, st.just(WHY)),
    st.builds(Chosen, st.sampled_from("abc")),
    st.builds(NoneLeft, st.just(WHY)),
    st.builds(HeadArrived),
    st.builds(FirstOut),
    st.builds(Completed),
    st.builds(Faulted, st.sampled_from(Fault), retry_after_s=st.none() | st.floats(0, 100)),
    st.builds(ClientLeft),
)


SPARES = st.lists(st.frozensets(st.sampled_from(Case)), max_size=3).map(tuple)


@given(st.lists(EVENTS, max_size=60), st.integers(0, 3), st.integers(0, 9), SPARES)
def test_no_sequence_of_events_breaks_the_laws(
    events: list[Event], retries: int, seed: int, spare: tuple[frozenset[Case], ...]
) -> None:
    draw, policy, life = random.Random(seed), Policy(retries=retries), Life(spare=spare)
    ends, asked, switched, dialled, out = 0, 0, 0, 0, False
    for event in events:
        if (life.phase, type(event)) not in NEXT:
            continue
        life, outcome = step(life, event, policy, draw)
        out = out or isinstance(event, FirstOut)
        dialled += isinstance(event, Chosen)
        if isinstance(outcome, Dial):
            asked += 1
            assert not out, "dialled after a byte reached the client"
            assert set(outcome.barred) <= set(outcome.tried)
        if isinstance(outcome, Switch):
            switched += outcome.places
            assert not out, "another model after a byte reached the client"
            assert life.tried == life.barred == ()
        if isinstance(outcome, Reject):
            assert not out, "a status after a byte reached the client"
        if isinstance(outcome, Break):
            assert out, "an error frame where a status was possible"
        if not isinstance(outcome, Dial | Switch | GoOn):
            ends += 1
        assert (life.phase is Phase.ENDED) == (ends == 1)
    assert ends <= 1 and switched <= len(spare)
    assert dialled <= retries + 1 + switched and asked <= retries + 1 + switched


def test_a_client_that_leaves_ends_every_phase_it_can_leave_in() -> None:
    for phase in Phase:
        if phase is not Phase.ENDED:
            assert step(Life(phase=phase), ClientLeft(), POLICY, random.Random(1))[1] == Vanish()
