"""Decides what a `store:` address names: a SQLite file, or a PostgreSQL server with how to reach it.

Laws: an option that is accepted has its effect, any other is refused by name; nothing is filled in from
the environment (a command and its server must never use different databases) but the password; no text
made here holds a password, not even one of an address that cannot be read.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec
from sqlalchemy import URL, exc, make_url

ACCEPTED = "write sqlite:////absolute/path/llmgw.db or postgresql://user:password@host:5432/database?sslmode=verify-full"
POSTGRESQL = frozenset({"postgresql", "postgres", "postgresql+asyncpg"})
PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")  # as libpq calls them
_WITH_CERTIFICATES = ("require", "verify-ca", "verify-full")
_VERIFYING = ("verify-ca", "verify-full")


class BadStoreUrl(Exception):
    """A store address that cannot be used; the text says what is accepted."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A store that is a file on this machine."""

    path: Path

    @property
    def name(self) -> str:
        """How messages call it."""
        return str(self.path)


class Tls(msgspec.Struct, frozen=True):
    """How far the connection to a database server is protected; `mode` is one of `SSL_MODES`."""

    mode: str = "prefer"
    authorities: Path | None = None  # None: those this machine trusts
    certificate: Path | None = None
    key: Path | None = None  # None: in the certificate's file

    def setting(self) -> str | ssl.SSLContext:
        """As the driver takes it. Reads the files; raises `OSError` (`ssl.SSLError` for their content)."""
        if self.mode not in _VERIFYING and self.certificate is None:
            return self.mode
        context = ssl.create_default_context(cafile=self.authorities)
        context.check_hostname = self.mode == "verify-full"
        if self.mode not in _VERIFYING:
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


class PostgresServer(msgspec.Struct, frozen=True):
    """A store on a PostgreSQL server. Its `repr` does not tell the password."""

    host: str  # a name, an address, or the absolute folder of the server's Unix socket
    port: int
    user: str
    database: str
    password: str | None = None  # None: PGPASSWORD or the user's password file, as PostgreSQL's tools do
    tls: Tls = Tls()

    def __repr__(self) -> str:
        return f"PostgresServer({self.name!r})"

    @property
    def name(self) -> str:
        """How messages call it."""
        return self._url({}).render_as_string(hide_password=False)

    @property
    def tool_address(self) -> str:
        """The address as PostgreSQL's own tools take it, without the password."""
        tls = self.tls
        options = {
            "sslmode": None if tls.mode == Tls().mode else tls.mode,
            "sslrootcert": tls.authorities,
            "sslcert": tls.certificate,
            "sslkey": tls.key,
        }
        given = {name: str(value) for name, value in options.items() if value is not None}
        return self._url(given).render_as_string(hide_password=False)

    def _url(self, query: Mapping[str, str]) -> URL:
        folder = self.host.startswith("/")
        return URL.create(
            "postgresql",
            username=self.user,
            host=None if folder else self.host,
            port=self.port,
            database=self.database,
            query={"host": self.host, **query} if folder else query,
        )


StoreAddress = SqliteFile | PostgresServer


def parse_store_url(url: str) -> StoreAddress:
    """What a `store:` address names. Raises `BadStoreUrl`."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):  # a port that is no number is the latter
        raise BadStoreUrl(f"store: {_shown(url)!r} is not a store address; {ACCEPTED}") from None
    if parsed.drivername in POSTGRESQL:
        return _postgres(parsed)
    if parsed.drivername != "sqlite":
        raise BadStoreUrl(f"store: {parsed.drivername!r} is no database llmgw knows; {ACCEPTED}")
    if not parsed.database or parsed.database == ":memory:" or parsed.query or parsed.host:
        raise BadStoreUrl(f"store: {_shown(url)!r} names no file; {ACCEPTED}")
    path = Path(parsed.database)
    if not path.is_absolute():
        # Else the folder a command is started in would decide which database it works on.
        raise BadStoreUrl(f"store: {_shown(url)!r} is not an absolute path; {ACCEPTED}")
    return SqliteFile(path)


def _shown(url: str) -> str:
    """An address as far as it certainly holds no password."""
    scheme, colon, _ = url.partition(":")
    secretive = "@" in url or (bool(colon) and scheme != "sqlite")
    return f"{scheme}:…" if secretive else url


# ---------------------------------------------------------------- PostgreSQL


def _postgres(parsed: URL) -> PostgresServer:
    options = _options(parsed.query)
    host, folder = parsed.host, options.pop("host", None)
    if folder is not None and (host or not folder.startswith("/")):
        raise BadStoreUrl(
            "store: ?host= is for the absolute folder of the server's Unix socket, without a host before it"
        )
    if folder and options:
        raise BadStoreUrl(f"store: {next(iter(options))} has no effect on a Unix socket")
    if host and "," in host:
        raise BadStoreUrl("store: names several hosts; name one, behind which the server in charge answers")
    if not 0 < (parsed.port or PORT) < 65536:
        raise BadStoreUrl(f"store: {parsed.port} is no port")
    for what, value in (("host", host or folder), ("user", parsed.username), ("database", parsed.database)):
        if not value:
            raise BadStoreUrl(f"store: the address names no {what}; {ACCEPTED}")
    return PostgresServer(
        host=host or folder or "",
        port=parsed.port or PORT,
        user=parsed.username or "",
        database=parsed.database or "",
        password=parsed.password or None,
        tls=_tls(options),
    )


def _options(query: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    known = ("host", "sslmode", "sslrootcert", "sslcert", "sslkey")
    options = {}
    for name, value in query.items():
        if name not in known:
            raise BadStoreUrl(f"store: option {name!r} is not known; there are {', '.join(known)}")
        if not isinstance(value, str) or not value:
            raise BadStoreUrl(f"store: option {name!r} needs exactly one value")
        options[name] = value
    return options


def _tls(options: Mapping[str, str]) -> Tls:
    mode = options.get("sslmode", Tls().mode)
    if mode not in SSL_MODES:
        raise BadStoreUrl(f"store: sslmode={mode} is not known; there are {', '.join(SSL_MODES)}")
    _only_with("sslrootcert", options, mode, _VERIFYING)
    _only_with("sslcert", options, mode, _WITH_CERTIFICATES)
    if "sslkey" in options and "sslcert" not in options:
        raise BadStoreUrl("store: sslkey is for an sslcert, and there is none")
    return Tls(mode, *(_file(name, options) for name in ("sslrootcert", "sslcert", "sslkey")))


def _only_with(name: str, options: Mapping[str, str], mode: str, modes: tuple[str, ...]) -> None:
    if name in options and mode not in modes:
        raise BadStoreUrl(f"store: {name} has no effect with sslmode={mode}; write sslmode={modes[-1]}")


def _file(name: str, options: Mapping[str, str]) -> Path | None:
    if name not in options:
        return None
    path = Path(options[name])
    if not path.is_absolute():
        raise BadStoreUrl(f"store: {name}={path} is not an absolute path")
    return path
