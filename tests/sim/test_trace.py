"""The trace: equal histories have equal hashes, a story holds what concerns one thing."""

from llmgw.sim.trace import KEPT, Trace


def test_equal_histories_hash_alike_and_a_moment_makes_a_difference() -> None:
    def digest(at: float, text: str) -> str:
        trace = Trace(lambda: at)
        trace.note("kind", text, "n1")
        return trace.digest()

    assert digest(1.0, "a") == digest(1.0, "a")
    assert len({digest(1.0, "a"), digest(1.1, "a"), digest(1.0, "b")}) == 3


def test_the_hash_covers_what_is_no_longer_kept() -> None:
    def digest(first: str) -> str:
        trace = Trace(lambda: 0.0)
        for text in (first, *("x" for _ in range(KEPT))):
            trace.note("kind", text)
        return trace.digest()

    assert digest("a") != digest("b")


def test_a_story_holds_the_last_lines_about_its_subjects_in_order() -> None:
    trace = Trace(lambda: 2.5)
    for number in range(10):
        trace.note("spawned", f"engine {number}", "n1" if number % 2 else "n2", f"r-{number}")
    assert trace.story(["r-4", "n1"], limit=3) == [
        "    2.5000  spawned      engine 5",
        "    2.5000  spawned      engine 7",
        "    2.5000  spawned      engine 9",
    ]
    assert len(trace.story([])) == 10
    assert trace.counts["spawned"] == 10
