"""The tables of shards and replicas are total, and a replica's phase follows from its shards."""

from itertools import product

import pytest

from llmgw.core.reason import Failure
from llmgw.core.replica import (
    COURSE_NEVER,
    COURSE_NEXT,
    ENDED,
    NEVER,
    NEXT,
    SAID,
    Course,
    CourseEvent,
    Fetched,
    ReplicaPhase,
    ShardEvent,
    ShardPhase,
    breakage,
    hear_shard,
    note_fetch,
    phase_of,
    startup_overdue,
    step_course,
    step_shard,
)
from tests.core.replicas import OOM, on, ready, replica, told

P = ShardPhase


@pytest.mark.parametrize(("phase", "event"), list(product(ShardPhase, ShardEvent)))
def test_every_phase_and_event_is_in_exactly_one_table(phase: ShardPhase, event: ShardEvent) -> None:
    assert ((phase, event) in NEXT) != ((phase, event) in NEVER)


@pytest.mark.parametrize(("course", "event"), list(product(Course, CourseEvent)))
def test_every_course_and_event_is_in_exactly_one_table(course: Course, event: CourseEvent) -> None:
    assert ((course, event) in COURSE_NEXT) != ((course, event) in COURSE_NEVER)


def test_every_word_of_an_agent_is_an_event() -> None:
    assert SAID.keys() == set(ShardPhase)


def test_nothing_leads_out_of_an_end() -> None:
    for (phase, _), after in NEXT.items():
        if phase in ENDED:
            assert after is phase


def test_a_stop_that_was_decided_is_not_undone_by_late_words() -> None:
    for (phase, _), after in NEXT.items():
        if phase is P.STOPPING:
            assert after is P.STOPPING or after in ENDED


def test_claims_end_with_the_process_only() -> None:
    """What an agent cannot know never ends a shard: losing sight of it, or a word of a newer version."""
    for phase in set(ShardPhase) - ENDED:
        for event in (ShardEvent.NODE_LOST, ShardEvent.SAID_UNKNOWN, ShardEvent.STOP_DECIDED):
            assert NEXT[phase, event] not in ENDED


def test_a_course_that_ends_a_replica_never_turns_back() -> None:
    ending = {Course.DRAIN, Course.STOP, Course.FAIL}
    assert all(after in ending for (course, _), after in COURSE_NEXT.items() if course in ending)


# ---------------------------------------------------------------- the replica's phase (R2)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((P.READY,), ReplicaPhase.READY),
        ((P.READY, P.READY), ReplicaPhase.READY),
        ((P.READY, P.STARTING), ReplicaPhase.STARTING),
        ((P.ASSIGNED, P.FETCHING), ReplicaPhase.STARTING),
        ((P.READY, P.UNKNOWN), ReplicaPhase.STARTING),
        ((P.READY, P.FAILED), ReplicaPhase.FAILED),
        ((P.READY, P.GONE), ReplicaPhase.FAILED),
        ((P.STOPPING,), ReplicaPhase.FAILED),
    ],
)
def test_a_kept_replica_is_ready_only_when_all_its_shards_are(
    phases: tuple[ShardPhase, ...], expected: ReplicaPhase
) -> None:
    assert phase_of(replica(*phases)) is expected


def test_one_short_of_shards_has_failed_unless_adoption_is_putting_it_together() -> None:
    assert phase_of(replica(P.READY, count=2)) is ReplicaPhase.FAILED
    assert phase_of(replica(P.READY, count=2, adopted=True)) is ReplicaPhase.STARTING


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        (Course.LOST, ReplicaPhase.LOST),
        (Course.DRAIN, ReplicaPhase.DRAINING),
        (Course.STOP, ReplicaPhase.STOPPING),
        (Course.FAIL, ReplicaPhase.FAILED),
    ],
)
def test_what_was_decided_shows_whatever_its_shards_say(course: Course, expected: ReplicaPhase) -> None:
    assert phase_of(replica(P.READY, course=course)) is expected


def test_a_stopped_replica_is_gone_when_the_last_process_is() -> None:
    stopping = replica(P.READY, P.READY, course=Course.STOP)
    half = step_shard(stopping, 0, ShardEvent.SAID_GONE, 1.0)
    assert phase_of(half) is ReplicaPhase.STOPPING
    assert not half.over
    assert phase_of(step_shard(half, 1, ShardEvent.SAID_FAILED, 1.0)) is ReplicaPhase.GONE


def test_deciding_to_stop_decides_it_for_every_shard_that_runs() -> None:
    failed = on(replica(P.READY, P.FAILED), Course.FAIL)
    assert [shard.phase for shard in failed.shards] == [P.STOPPING, P.FAILED]


def test_a_decision_that_may_not_follow_is_a_bug() -> None:
    with pytest.raises(KeyError):
        step_course(replica(P.READY, course=Course.STOP), CourseEvent.WITHDRAWN, 1.0)


# ---------------------------------------------------------------- hearing


def test_the_words_of_the_agent_that_saw_a_failure_are_kept() -> None:
    starting = replica(P.STARTING)
    failed = hear_shard(starting, told(starting, P.FAILED, failure=OOM), 5.0)
    assert breakage(failed) == OOM


def test_a_late_word_of_an_ended_shard_changes_nothing() -> None:
    gone = replica(P.FAILED)
    assert hear_shard(gone, told(gone, P.READY), 5.0) is gone


def test_a_restarted_agent_that_verifies_a_serving_engine_does_not_take_it_from_service() -> None:
    serving = ready()
    assert phase_of(hear_shard(serving, told(serving, P.STARTING), 9.0)) is ReplicaPhase.READY


def test_a_report_fills_in_the_process_and_keeps_the_claim() -> None:
    starting = replica(P.ASSIGNED)
    heard = hear_shard(starting, told(starting, P.STARTING), 1.0)
    assert heard.shards[0].pid == 4711
    assert heard.shards[0].claim == starting.shards[0].claim


def test_a_shard_missing_from_a_whole_report_says_where_it_was_missed() -> None:
    lost = step_shard(ready(), 0, ShardEvent.ABSENT, 1.0)
    why = breakage(lost)
    assert why is not None
    assert why.code is Failure.SHARD_MISSING
    assert "n1" in why.text


# ---------------------------------------------------------------- clocks (R5)


def test_the_startup_clock_runs_from_creation_when_nothing_is_fetched() -> None:
    starting = replica(P.STARTING)
    assert not startup_overdue(starting, 599.9)
    assert startup_overdue(starting, 600.0)
    assert startup_overdue(replica(P.ASSIGNED), 600.0), "also when its agent never said anything"


def test_the_startup_clock_begins_when_the_last_fetch_ended() -> None:
    fetching = replica(P.FETCHING, P.FETCHING)
    assert not startup_overdue(fetching, 10_000.0)
    one = step_shard(fetching, 0, ShardEvent.SAID_STARTING, 1000.0)
    assert not startup_overdue(one, 10_000.0), "one still fetches"
    both = step_shard(one, 1, ShardEvent.SAID_STARTING, 2000.0)
    assert not startup_overdue(both, 2599.0)
    assert startup_overdue(both, 2600.0)


def test_repeated_words_do_not_restart_the_startup_clock() -> None:
    starting = replica(P.STARTING)
    for now in (100.0, 300.0, 590.0):
        starting = hear_shard(starting, told(starting, P.STARTING), now)
    assert startup_overdue(starting, 600.0)


def test_a_ready_replica_has_no_startup_clock() -> None:
    assert not startup_overdue(ready(), 10_000.0)


def test_the_time_of_getting_ready_is_the_first() -> None:
    serving = ready(at=7.0)
    assert serving.ready_at == 7.0
    assert hear_shard(serving, told(serving, P.READY), 50.0).ready_at == 7.0


# ---------------------------------------------------------------- progress (A20)


def test_progress_shows_only_while_fetching_and_ends_with_it() -> None:
    fetching = note_fetch(replica(P.FETCHING), 0, Fetched(10, 100))
    assert fetching.shards[0].fetched == Fetched(10, 100)
    assert step_shard(fetching, 0, ShardEvent.SAID_STARTING, 1.0).shards[0].fetched is None
    starting = replica(P.STARTING)
    assert note_fetch(starting, 0, Fetched(10, 100)) is starting
