"""What operators read of the fleet, from its state."""

from llmgw.control.rows import replica_rows
from llmgw.core.replica import Course, ShardPhase
from tests.core.replicas import on, ready, replica
from tests.core.test_reconcile import state


def test_the_last_failure_of_a_model_is_listed_with_its_reason_and_nothing_that_is_not_there_any_more() -> (
    None
):
    broken = on(replica(ShardPhase.FAILED, id="m-00000009"), Course.FAIL)
    serving = ready()
    (row,) = replica_rows(state(failed={"m": broken}), 1000.0)
    assert (row.id, row.state, row.reason) == ("m-00000009", "failed", "a reason")
    assert row.url is None and row.shards[0].pid is None
    (other,) = replica_rows(state(serving, failed={"m": broken}), 1000.0)
    assert (other.id, other.url) == (serving.id, "http://n1.example:20000")
