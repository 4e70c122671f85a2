"""Lines that stay and one that changes."""

import io

from llmgw.entry.up_screen import CLEAR, Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_each_change_once_as_a_line() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.progress("starting", 0.1)
    screen.progress("starting", 0.4)
    screen.say("a note")
    screen.progress("placing", 0.8)
    screen.end_progress()
    screen.say("ready")
    assert out.getvalue() == "starting …\na note\nplacing …\nready\n"


def test_a_terminal_gets_one_changing_line_that_never_mixes_with_others() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.progress("starting", 0.0)
    screen.progress("starting", 1.0)
    screen.say("a note")
    screen.end_progress()
    screen.say("ready")
    assert out.getvalue().split(CLEAR) == [
        "",
        "starting (0 s)",
        "starting (1 s)",
        "a note\n",
        "starting",
        "",
        "ready\n",
    ]


def test_what_a_node_is_called_cannot_command_the_terminal() -> None:
    out = Terminal()
    Screen(out).progress("tiny: starting on \x1b[2Jevil\n", 0.0)
    assert out.getvalue() == f"{CLEAR}tiny: starting on evil\\n (0 s)"
