"""Whether and where a request may be sent now, and which refusal tells why not."""

import msgspec
import pytest

from llmgw.core.admission import admit
from llmgw.core.refusal import Code, Refuse


class Seat(msgspec.Struct, frozen=True):
    id: str
    in_flight: int = 0
    weight: float = 1.0


class Model(msgspec.Struct, frozen=True):
    name: str = "qwen"
    mode: str = "always"
    starting: bool = False
    reason: str | None = None


def test_a_model_with_an_endpoint_is_served_also_when_it_is_off() -> None:
    assert admit(Model(mode="off"), [Seat("a")]) == Seat("a")


@pytest.mark.parametrize(
    ("model", "code", "words"),
    [
        (Model(starting=True), Code.MODEL_LOADING, "is loading;"),
        (Model(starting=True, reason="40 %"), Code.MODEL_LOADING, "is loading (40 %);"),
        (Model(mode="off"), Code.MODEL_OFF, "is off"),
        (Model(), Code.NO_ENDPOINT, "no replica is ready"),
        (Model(reason="needs 24 GB"), Code.NO_ENDPOINT, "now: needs 24 GB."),
        (Model(mode="on-demand"), Code.NO_ENDPOINT, "no replica is ready"),
    ],
)
def test_a_model_without_an_endpoint_says_why(model: Model, code: Code, words: str) -> None:
    refused = admit(model, list[Seat]())
    assert isinstance(refused, Refuse)
    assert refused.code is code and refused.param == "model"
    assert words in refused.message and "'qwen'" in refused.message


def test_one_that_failed_comes_after_those_that_did_not() -> None:
    seats = [Seat("failed"), Seat("busy", 40)]
    assert admit(Model(), seats, tried=("failed",)) == Seat("busy", 40)


def test_one_that_failed_is_taken_again_when_it_is_alone_and_may_recover() -> None:
    assert admit(Model(), [Seat("a")], tried=("a",)) == Seat("a")
    assert isinstance(admit(Model(), [Seat("a")], tried=("a",), barred=("a",)), Refuse)
