"""The checkers: each finds its own kind of broken promise, and passes what is allowed."""

import random
from collections.abc import Iterator

import pytest

from llmgw.core.claims import Claim
from llmgw.core.inventory import Gpu, NodeReport
from llmgw.core.units import GB
from llmgw.ports import ProcessId, SpawnSpec
from llmgw.sim.checkers import (
    BooksHold,
    Checker,
    NoOlderTerm,
    NothingTwice,
    OneEngine,
    ReadyFirst,
    WithdrawnFirst,
    all_checkers,
)
from llmgw.sim.facts import Books, EngineFact, Facts, RouterFact, Violation
from llmgw.sim.loop import SimLoop
from llmgw.sim.machine import SimMachine, SimProcess, no_such_program
from llmgw.sim.network import SimNetwork
from llmgw.wire.agent_v1 import ShardKey, ShardSpec
from llmgw.wire.watch_v1 import EndpointEntry
from tests.sim.test_machine import Scripted, Witness, for_ever

NODE = NodeReport(
    id="n1",
    address="10.0.0.1",
    memory_total_bytes=16 * GB,
    gpus=(Gpu(0, memory_total_bytes=24 * GB), Gpu(1, memory_total_bytes=24 * GB)),
)


class Stage:
    """Facts on which engines and routers are put by hand."""

    def __init__(self) -> None:
        self.time = 100.0
        self.facts = Facts(lambda: self.time)
        self.facts.inventory = {"n1": NODE, "n2": NODE}
        self._network = SimNetwork(random.Random(1))
        self.loop = SimLoop(self._network)
        self._machine = SimMachine("n1", "10.0.0.1", self._network, no_such_program, Witness())
        self._pids = 0

    def engine(
        self, replica: str, claim: Claim | None = None, *, node: str = "n1", ready: bool = True
    ) -> EngineFact:
        self._pids += 1
        process = SimProcess(
            self._machine,
            ProcessId("boot-1", self._pids, 0),
            SpawnSpec(("engine",), {}, ""),
            Scripted(for_ever),
        )
        engine = EngineFact(node, ShardKey(replica, 0, 1), process, self.time)
        engine.claim = claim
        engine.port = claim.ports[0] if claim is not None and claim.ports else None
        engine.answered_at = self.time if ready else None
        self.facts.engines[process.name] = engine
        self.facts.told_to_stop.add(engine.key)
        return engine

    def router(self, *holds: str) -> RouterFact:
        router = RouterFact("router-0")
        router.connected_since = 0.0
        router.endpoints = {name: endpoint(name) for name in holds}
        self.facts.routers[router.name] = router
        return router


def endpoint(replica: str, port: int = 20000) -> EndpointEntry:
    return EndpointEntry(replica, "m", "10.0.0.1", port)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.loop.finish()


def texts(found: Iterator[Violation]) -> str:
    return "\n".join(violation.text for violation in found)


def whole(*gpus: int, port: int = 20000) -> Claim:
    return Claim(gpus=gpus, ports=(port,))


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (whole(0), whole(0, port=20001), "card 0 of n1"),
        (whole(0), Claim(gpus=(0,), gpu_memory_bytes=GB, ports=(20001,)), "card 0 of n1"),
        (
            Claim(gpus=(0,), gpu_memory_bytes=13 * GB),
            Claim(gpus=(0,), gpu_memory_bytes=12 * GB),
            "card 0 of n1",
        ),
        (Claim(memory_bytes=9 * GB), Claim(memory_bytes=8 * GB), "17000000000 bytes of 16000000000"),
        (Claim(ports=(20000,)), Claim(ports=(20000,)), "port 20000 of n1"),
        (Claim(), whole(7), "card 7, which n1 has not"),
        (Claim(), None, "never told to start it"),
    ],
)
def test_what_is_in_use_twice_is_found(stage: Stage, first: Claim, second: Claim | None, says: str) -> None:
    checker = NothingTwice(stage.facts)
    stage.engine("a-1", first)
    assert texts(checker.look()) == ""
    stage.engine("b-1", second)
    assert says in texts(checker.look())
    assert checker.checked >= 2


def test_shares_of_a_card_and_other_nodes_are_no_double_use(stage: Stage) -> None:
    checker = NothingTwice(stage.facts)
    stage.engine("a-1", Claim(gpus=(0,), gpu_memory_bytes=12 * GB, memory_bytes=8 * GB, ports=(20000,)))
    stage.engine("b-1", Claim(gpus=(0,), gpu_memory_bytes=12 * GB, memory_bytes=8 * GB, ports=(20001,)))
    stage.engine("c-1", whole(0), node="n2")
    assert texts(checker.look()) == ""


def test_a_live_engine_that_is_not_in_the_books_is_found_once_its_node_reported(stage: Stage) -> None:
    checker = BooksHold(stage.facts)
    stage.engine("a-1")
    stage.engine("b-1")
    assert texts(checker.look()) == ""  # no server runs
    stage.facts.books = lambda: Books(2, frozenset({("a-1", 0)}))
    stage.facts.welcomed["n1"] = 1
    assert texts(checker.look()) == ""  # the new server has not heard this node yet
    stage.facts.welcomed["n1"] = 2
    assert "b-1/0" in (found := texts(checker.look()))
    assert "a-1" not in found
    assert checker.checked == 2


def test_a_second_engine_of_a_shard_is_found_on_any_node(stage: Stage) -> None:
    checker = OneEngine(stage.facts)
    assert texts(checker.spawned(stage.engine("a-1"))) == ""
    assert texts(checker.spawned(stage.engine("b-1"))) == ""
    assert "two engines" in texts(checker.spawned(stage.engine("a-1", node="n2")))


def test_an_endpoint_of_an_engine_that_never_answered_is_found(stage: Stage) -> None:
    checker = ReadyFirst(stage.facts)
    router = stage.router()
    stage.engine("a-1", whole(0), ready=False)
    assert "before its engine answered" in texts(checker.published(router, endpoint("a-1")))
    stage.engine("b-1", whole(1, port=20001))
    assert texts(checker.published(router, endpoint("b-1", 20001))) == ""
    assert "is on 20001" in texts(checker.published(router, endpoint("b-1", 20000)))


def test_the_endpoint_of_an_engine_that_just_died_is_only_late(stage: Stage) -> None:
    assert texts(ReadyFirst(stage.facts).published(stage.router(), endpoint("gone-1"))) == ""


def test_stopping_what_a_router_still_sends_to_is_found(stage: Stage) -> None:
    checker = WithdrawnFirst(stage.facts)
    router = stage.router("a-1", "b-1", "c-1")
    assert "was not told to drop it" in texts(checker.signalled(stage.engine("a-1")))
    router.withdrawn_at["b-1"] = (stage.time - 0.5, 3)
    assert "0.500 s after" in texts(checker.signalled(stage.engine("b-1")))
    assert checker.checked == 2


def test_stopping_after_the_withdrawal_or_its_bound_or_what_never_served_is_right(stage: Stage) -> None:
    checker = WithdrawnFirst(stage.facts)
    router = stage.router("late-1", "cut-1", "new-1")
    router.withdrawn_at["late-1"] = (stage.time - 2.0, 3)
    assert texts(checker.signalled(stage.engine("late-1"))) == ""
    assert texts(checker.signalled(stage.engine("dropped-1"))) == ""
    assert texts(checker.signalled(stage.engine("new-1", ready=False))) == ""
    router.connected_since = None
    assert texts(checker.signalled(stage.engine("cut-1"))) == ""


def test_what_an_agent_ends_on_its_own_has_failed_and_needs_no_withdrawal(stage: Stage) -> None:
    stage.router("a-1")
    engine = stage.engine("a-1")
    stage.facts.told_to_stop.clear()
    assert texts(WithdrawnFirst(stage.facts).signalled(engine)) == ""


def test_a_start_under_an_older_term_is_found_unless_the_newer_one_said_it_too(stage: Stage) -> None:
    checker = NoOlderTerm(stage.facts)
    engine = stage.engine("a-1")
    spec = ShardSpec(engine.key, "m", "p", "", "sim", None, 1, "10.0.0.1", 20000, Claim())
    stage.facts.told_to_start("n1", 3, spec)
    assert texts(checker.spawned(engine)) == ""
    stage.facts.told_to_start("n1", 2, spec)
    assert "older term" in texts(checker.spawned(engine))
    stage.facts.told_to_start("n1", 3, spec)
    assert texts(checker.spawned(engine)) == ""


def test_every_checker_has_a_name_of_its_own_and_nothing_to_say_of_an_empty_cluster(stage: Stage) -> None:
    checkers = all_checkers(stage.facts)
    assert len({checker.name for checker in checkers} - {Checker.name}) == len(checkers)
    assert [texts(checker.look()) for checker in checkers] == [""] * len(checkers)
