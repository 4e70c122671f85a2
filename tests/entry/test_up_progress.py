"""What `llmgw up` says while it starts."""

import msgspec

from llmgw.entry.up_progress import progress, same_trouble
from llmgw.wire.admin_v1 import ModelRow, ReplicaRow, RouterRow, ShardRow, Status
from tests.web.stub import EMPTY


def model(
    name: str = "tiny", state: str = "waiting", *, ready: int = 0, reason: str | None = None
) -> ModelRow:
    return ModelRow(name, "always", state, "declared", 1, ready, 0, False, reason=reason)


def status(
    *models: ModelRow, nodes: int = 1, told: int | None = 5, settling_s: float | None = None
) -> Status:
    routers = (RouterRow("r", 1, "0.1.0", told, None),) if told is not None else ()
    return msgspec.structs.replace(
        EMPTY.status,
        models=models,
        nodes={"ready": nodes},
        routers=routers,
        revision=5,
        settling_s=settling_s,
    )


def replica(phase: str, progress: str | None = None) -> ReplicaRow:
    return ReplicaRow(
        "t-1", "tiny", "cpu", "starting", None, None, False, (ShardRow(0, "vm", 1, phase, progress),)
    )


def test_each_step_of_a_start_is_said() -> None:
    assert progress(None, ()).line == "starting the server"
    assert progress(status(model(), nodes=0), ()).line == "waiting for this machine's agent"
    assert progress(status(model(), settling_s=1.5), ()).line == "tiny: looking for what runs already"
    assert progress(status(model()), ()).line == "tiny: placing"
    assert progress(status(model(state="loading")), [replica("starting")]).line == "tiny: starting on vm"
    assert progress(status(model(state="loading")), [replica("fetching", "1 GB so far")]).line == (
        "tiny: fetching on vm: 1 GB so far"
    )


def test_it_serves_when_a_router_knows_the_endpoint() -> None:
    ready = model(state="ready", ready=1)
    assert not progress(status(ready, told=4), ()).done
    assert not progress(status(ready, told=None), ()).done
    now = progress(status(ready), ())
    assert (now.done, now.ready) == (True, ("tiny",))


def test_a_model_that_does_not_start_is_said_and_keeps_the_others_from_nothing() -> None:
    failed = msgspec.structs.replace(model("big", "failed", reason="needs 24 GB, has 8 GB"), retry_s=4.2)
    now = progress(status(failed), ())
    assert (now.done, now.trouble) == (False, ("big does not run: needs 24 GB, has 8 GB (next try in 4s)",))
    both = progress(status(failed, model(state="ready", ready=1)), ())
    assert (both.done, both.ready) == (True, ("tiny",))
    assert both.trouble == now.trouble


def test_no_node_is_no_trouble_before_one_has_joined() -> None:
    assert progress(status(model(reason="needs a node, has none"), nodes=0), ()).trouble == ()


def test_without_models_it_serves_as_soon_as_a_router_runs() -> None:
    assert not progress(status(told=None), ()).done
    assert progress(status(), ()).done
    off = msgspec.structs.replace(model(), wanted=0, state="off")
    assert progress(status(off), ()).done


def test_the_same_trouble_with_another_wait_is_no_news() -> None:
    assert same_trouble("a does not run: x (next try in 4s)", "a does not run: x (next try in 9s)")
    assert not same_trouble("a does not run: x", "a does not run: y")


def test_real_models_come_before_simulated_ones() -> None:
    simulated = msgspec.structs.replace(model("a-sim", "ready", ready=1), simulated=True)
    assert progress(status(simulated, model(state="ready", ready=1)), ()).ready == ("tiny", "a-sim")
