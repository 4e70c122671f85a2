"""What a model cannot take is refused by name and figure, and nothing on a mere suspicion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.demands import Length, judged, lacking, too_long
from llmgw.core.refusal import Code


@pytest.mark.parametrize(
    ("estimate", "length"),
    [(0, "fits"), (909, "fits"), (910, "unsure"), (1000, "unsure"), (2000, "unsure"), (2001, "too_long")],
)
def test_an_estimate_refuses_only_above_twice_the_context(estimate: int, length: str) -> None:
    assert judged(estimate, 1000).value == length


@given(st.integers(0, 10**7), st.integers(1, 10**6))
def test_longer_is_never_thought_shorter(estimate: int, context: int) -> None:
    order = list(Length)
    assert order.index(judged(estimate, context)) <= order.index(judged(estimate + 1, context))
    assert judged(context, context) is Length.UNSURE or context < 1


def test_the_refusal_names_what_was_counted_and_what_is_allowed() -> None:
    refuse = too_long("m", "messages", 5000, 4096)
    assert (refuse.code, refuse.param) == (Code.CONTEXT_EXCEEDED, "messages")
    assert "5000" in refuse.message and "4096" in refuse.message and "about" not in refuse.message
    assert "about 5000" in too_long("m", "messages", 5000, 4096, estimated=True).message


def test_capabilities_nobody_wrote_refuse_nothing() -> None:
    assert lacking("m", None, "tools", "tools") is None
    assert lacking("m", ("chat", "tools"), "tools", "tools") is None


def test_a_missing_capability_is_named_with_those_there_are() -> None:
    refuse = lacking("m", ("chat", "vision"), "tools", "tools")
    assert refuse is not None
    assert (refuse.code, refuse.param) == (Code.UNSUPPORTED, "tools")
    assert "'tools'" in refuse.message and "chat, vision" in refuse.message and "'m'" in refuse.message
