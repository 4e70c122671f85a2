"""Reasons print what a person can act on, and their codes stay what programs were told."""

from llmgw.core.reason import Explained, Failure, Rejection, Unfit


def test_a_rejection_names_both_numbers_and_the_remedy_when_there_is_one() -> None:
    with_remedy = Rejection(Unfit.MEMORY, "24 GB memory", "16 GB free of 31 GB", "stop qwen-1a2b3c4d")
    assert with_remedy.line() == "needs 24 GB memory, has 16 GB free of 31 GB: stop qwen-1a2b3c4d"
    without = Rejection(Unfit.LABELS, "pool=coding", "pool=chat")
    assert without.line() == "needs pool=coding, has pool=chat"


def test_every_reason_is_its_name_in_lower_case() -> None:
    """They are metric labels and JSON values: one spelling, whatever the list grows to."""
    for reason in (*Unfit, *Failure):
        assert reason.value == reason.name.lower()


def test_an_explained_failure_needs_no_log() -> None:
    assert Explained(Failure.PORT_BUSY, "port 20001 is busy").log_tail == ()
