"""The values between decisions and what performs them."""

from typing import get_args

from llmgw.core import orders


def test_every_answer_and_every_command_about_a_shard_names_the_incarnation() -> None:
    nodewide = {orders.RememberTerm}
    for kind in (*get_args(orders.Answer), *get_args(orders.Command)):
        if kind not in nodewide:
            assert "id" in kind.__struct_fields__, kind


def test_a_command_that_yields_an_event_says_which() -> None:
    answers = {kind.__name__ for kind in get_args(orders.Answer)}
    yielded = {
        word.strip("`.,")
        for kind in get_args(orders.Command)
        for word in (kind.__doc__ or "").split()
        if word.strip("`.,") in answers
    }
    assert yielded == answers
