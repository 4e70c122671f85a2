"""Writes docs/reference/errors.md from the table of client errors; a test compares the two."""

from pathlib import Path

from llmgw.net.http1 import refusals
from llmgw.wire.errors import ERRORS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "errors.md"

INTRO = """\
# Errors of the client listener

Made by `scripts/errors_page.py` from `llmgw.wire.errors`; change the table, not this page.

Every error is `{"error": {"message", "type", "param", "code"}}`, and every answer, good or bad, has an
`x-request-id`. Branch on `code`: it is stable. A stream that fails after its first event ends with one
event that holds such an error, without `data: [DONE]`, and the connection is closed without the final
chunk: it cannot be taken for a whole answer.

| code | status | type | headers | meaning |
| --- | --- | --- | --- | --- |
"""


BEFORE_HTTP = """
A request that is not proper HTTP is refused before anything else is looked at, in the same shape:

| code | status | type | meaning |
| --- | --- | --- | --- |
"""


def render() -> str:
    """The text of the page."""
    lines = []
    for code, shape in ERRORS.items():
        headers = [f"`{name.decode()}: {value.decode()}`" for name, value in shape.headers]
        if shape.retry_after_s is not None:
            headers.append("`retry-after`")
        shown = ", ".join(headers) or "-"
        lines.append(f"| `{code.value}` | {shape.status} | `{shape.type}` | {shown} | {shape.meaning} |\n")
    return INTRO + "".join(lines) + BEFORE_HTTP + "".join(_row(one) for one in _listener_refusals())


def _listener_refusals() -> list[refusals.Refusal]:
    """What the listener refuses by itself, save for codes the first table has."""
    known = {code.value for code in ERRORS}
    found = [one for one in vars(refusals).values() if isinstance(one, refusals.Refusal)]
    malformed = refusals.bad_request("The request breaks the rules of HTTP/1.1; the message says which.")
    return [malformed, *(one for one in found if one.code not in known)]


def _row(refusal: refusals.Refusal) -> str:
    return f"| `{refusal.code}` | {refusal.status} | `{refusal.type}` | {refusal.message} |\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
