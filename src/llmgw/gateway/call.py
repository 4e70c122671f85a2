"""One request on its way through the gateway: what every handler is given, and how an answer is begun.

Laws: every answer has our `x-request-id`; a client's own headers are never copied into an answer.
"""

import msgspec

from llmgw.core.refusal import Refuse
from llmgw.gateway.state import Header, Table
from llmgw.ports import Exchange
from llmgw.wire.errors import error_response
from llmgw.wire.watch_v1 import KeyEntry

JSON: Header = (b"content-type", b"application/json")
NO_STORE: Header = (b"cache-control", b"no-store")


class Call(msgspec.Struct, frozen=True):
    """One request. `argument` is what the path names, where its route takes something."""

    exchange: Exchange
    request_id: str
    id_header: Header  # `x-request-id`, ours
    argument: str = ""

    def respond(self, status: int, headers: tuple[Header, ...], body: bytes) -> None:
        """Answer whole."""
        self.exchange.respond(status, (*headers, self.id_header), body)

    def refuse(self, refuse: Refuse) -> None:
        """Answer with an error."""
        answer = error_response(refuse)
        self.respond(answer.status, answer.headers, answer.body)


class Caller(msgspec.Struct, frozen=True):
    """Whose request it is, and the table it is served from."""

    key: KeyEntry
    table: Table
