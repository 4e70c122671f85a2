"""Writes down what became of one accepted request: the one row it leaves (K6).

Laws: exactly one row, whatever the end; figures are the engine's own, and marked where they had to be
estimated; nothing that never reached the client is counted.
"""

from collections.abc import Callable

import msgspec

from llmgw.core.refusal import Refuse
from llmgw.gateway.served_routes import Counts, Relayed
from llmgw.gateway.usage import UsageBuffer
from llmgw.wire.errors import code_of, status_of
from llmgw.wire.openai import Ask, Usage
from llmgw.wire.sse import StreamScanner
from llmgw.wire.watch_v1 import KeyEntry, UsageRow

CLIENT_LEFT = 499
BYTES_A_TOKEN = 4  # of a body, roughly, where the engine gave no figures


class Accepted(msgspec.Struct, frozen=True):
    """A request that was accepted: whose, for which model, by which route, when (wall time, loop time)."""

    request_id: str
    key: KeyEntry
    ask: Ask
    model: str
    route: Relayed
    body_size: int
    at: float
    began_s: float


class Record:
    """A row in the making."""

    # How every row begins; on the class, because one is made for each request.
    usage: Usage | None = None
    scanner: StreamScanner | None = None
    _status = 500  # a row that nobody completed tells of a fault of ours
    _error: str | None = "internal_error"
    _model: str | None = None  # that is asked instead of the one the request was accepted for
    _attempts = 0
    _endpoint: str | None = None
    _first_byte_s: float | None = None

    def __init__(self, accepted: Accepted, time: Callable[[], float]) -> None:
        self._accepted = accepted
        self._time = time
        self.began_s = accepted.began_s

    def attempt(self, endpoint: str) -> None:
        """A request goes to this endpoint."""
        self._attempts += 1
        self._endpoint = endpoint
        self.scanner = None

    def fell_back(self, model: str) -> None:
        """Another model is asked instead."""
        self._model = model

    def first_byte(self) -> None:
        """The first bytes go to the client."""
        self._first_byte_s = self._time() - self.began_s

    def completed(self) -> None:
        """The client got a whole answer."""
        self._status, self._error = 200, None

    def failed(self, refuse: Refuse) -> None:
        """The client got an error, as a status or at the end of a stream that had begun."""
        self._status = 200 if self._first_byte_s is not None else status_of(refuse)
        self._error = code_of(refuse)

    def client_left(self) -> None:
        """The client closed its connection first."""
        self._status, self._error = CLIENT_LEFT, None

    def write(self, buffer: UsageBuffer) -> None:
        """Put the row down. Called once."""
        accepted = self._accepted
        key, ask = accepted.key, accepted.ask
        usage, estimated = self._figures()
        answered = self._first_byte_s is not None
        buffer.add(
            UsageRow(
                request_id=accepted.request_id,
                at=accepted.at,
                key_id=key.key_id,
                model_asked=ask.model,
                project=key.project,
                team=key.team,
                org=key.org,
                user=key.user,
                model_answered=(self._model or accepted.model) if answered else None,
                replica=self._endpoint,
                endpoint=accepted.route.path,
                stream=ask.stream,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                cached_tokens=usage.cached_tokens,
                estimated=estimated,
                status=self._status,
                error=self._error,
                latency_s=self._time() - self.began_s,
                first_byte_s=self._first_byte_s,
                attempts=self._attempts,
            )
        )

    def _figures(self) -> tuple[Usage, bool]:
        """Token figures, and whether they are a guess."""
        counts = self._accepted.route.counts
        if self._first_byte_s is None or counts is Counts.NOTHING:
            return Usage(), False
        scanner = self.scanner
        known = self.usage or (scanner.usage if scanner else None)
        if known is not None and known.completion_tokens is not None:
            return known, False
        if counts is Counts.PROMPT and known is not None and known.prompt_tokens is not None:
            return Usage(known.prompt_tokens, 0, known.cached_tokens), False
        # About one event a token; what generates nothing has none.
        events = 0 if counts is Counts.PROMPT else scanner.events if scanner else None
        prompt = known.prompt_tokens if known else None
        guess = self._accepted.body_size // BYTES_A_TOKEN if prompt is None else prompt
        return Usage(guess, events, known.cached_tokens if known else None), True
