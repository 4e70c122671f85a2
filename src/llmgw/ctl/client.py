"""Asks the admin API: one request, tried on each server in turn.

Laws: what no server answered is `Unreachable`, what one refused is `Refused`; a refusal is final and
not tried elsewhere; proxies of the environment are not used, as the token would pass through them.
"""

import http.client
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from llmgw.wire.admin_v1 import Problem, ProblemBody

T = TypeVar("T")

CONNECT_S = 3.0  # a loopback answers at once; a far server within a few round trips
ANSWER_S = 30.0


class Unreachable(Exception):
    """No server answered; one line a server."""


class Refused(Exception):
    """A server answered no."""

    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.status = status


class Target(msgspec.Struct, frozen=True):
    """A server's admin listener and the token for it. Raises `ValueError` in `parse` for what is no URL."""

    scheme: str
    host: str
    port: int
    token: str | None = None

    @staticmethod
    def parse(url: str, token: str | None = None) -> "Target":
        """`http://host:port`; the scheme may be left out, the port is then 8081."""
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
            raise ValueError(f"{url!r} is not a server's address; write it like http://127.0.0.1:8081")
        return Target(parts.scheme, parts.hostname, parts.port or 8081, token)

    @property
    def url(self) -> str:
        """The address as a person writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether it is certainly this machine."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")


class Client:
    """The admin API of an installation."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets

    def get(self, path: str, **query: object) -> bytes:
        """The JSON of a path. Raises `Unreachable`, `Refused`."""
        with_query = path + _query(query)
        return self._whole("GET", with_query, None)

    def put(self, path: str, value: object) -> bytes:
        """Set something, and the JSON of what it became. Raises `Unreachable`, `Refused`."""
        return self._whole("PUT", path, msgspec.json.encode(value))

    def lines(self, path: str, **query: object) -> Iterator[str]:
        """Lines of a text as they come, without their ends. Raises `Unreachable`, `Refused`."""
        response, connection = self._open("GET", path + _query(query), None, None)
        try:
            for line in response:
                yield line.decode("utf-8", "replace").rstrip("\n")
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the connection broke: {_words(error)}") from error
        finally:
            connection.close()

    def _whole(self, method: str, path: str, body: bytes | None) -> bytes:
        response, connection = self._open(method, path, body, ANSWER_S)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"the connection broke: {_words(error)}") from error
        finally:
            connection.close()

    def _open(
        self, method: str, path: str, body: bytes | None, answer_s: float | None
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        silent = []
        for target in self._targets:
            connection = _connection(target)
            try:
                connection.connect()
                socket = connection.sock  # `getresponse` may take it out of the connection
                socket.settimeout(ANSWER_S)
                connection.request(method, path, body, _headers(target))
                response = connection.getresponse()
                socket.settimeout(answer_s)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                silent.append(f"{target.url}: {_words(error)}")
                continue
            if response.status == 200:
                return response, connection
            try:
                raise _refusal(target, response)
            finally:
                connection.close()
        raise Unreachable("\n".join(silent))


def _connection(target: Target) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    return kind(target.host, target.port, timeout=CONNECT_S)


def _headers(target: Target) -> dict[str, str]:
    headers = {"Accept": "application/json, text/plain", "Content-Type": "application/json"}
    if target.token is not None:
        headers["Authorization"] = f"Bearer {target.token}"
    return headers


def _refusal(target: Target, response: http.client.HTTPResponse) -> Exception:
    try:
        body = response.read(1 << 20)
        return Refused(msgspec.json.decode(body, type=ProblemBody).error, response.status)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeDecodeError):
        text = f"{target.url} answered {response.status} {response.reason}, which is not llmgw's admin API"
        return Unreachable(text)


def _query(values: dict[str, object]) -> str:
    given = {name: str(value) for name, value in values.items() if value is not None}
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def quoted(name: str) -> str:
    """A name as one part of a path."""
    return urllib.parse.quote(name, safe="")
