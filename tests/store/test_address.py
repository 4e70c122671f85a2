"""Judges which addresses name a store, what they mean, and that none gives a password away."""

import ssl
from pathlib import Path

import pytest

from llmgw.store.address import BadStoreUrl, PostgresServer, SqliteFile, Tls, parse_store_url

SERVER = "postgresql://ann:s%40cret@db.example:6432/llmgw"


def test_an_absolute_file_is_understood() -> None:
    assert parse_store_url("sqlite:////var/lib/llmgw/llmgw.db") == SqliteFile(Path("/var/lib/llmgw/llmgw.db"))


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "postgres"])
def test_a_server_is_understood_under_each_of_its_names(scheme: str) -> None:
    found = parse_store_url(SERVER.replace("postgresql", scheme))
    assert found == PostgresServer("db.example", 6432, "ann", "llmgw", "s@cret")


def test_what_an_address_leaves_out_has_its_usual_value() -> None:
    assert parse_store_url("postgresql://ann@[::1]/llmgw") == PostgresServer("::1", 5432, "ann", "llmgw")


def test_the_folder_of_a_unix_socket_is_understood() -> None:
    found = parse_store_url("postgresql://ann@/llmgw?host=/run/postgresql")
    assert found == PostgresServer("/run/postgresql", 5432, "ann", "llmgw")


def test_tls_is_understood_as_postgresqls_own_tools_take_it() -> None:
    options = "?sslmode=verify-full&sslrootcert=/etc/ca.crt&sslcert=/etc/me.crt&sslkey=/etc/me.key"
    found = parse_store_url(SERVER + options)
    assert isinstance(found, PostgresServer)
    assert found.tls == Tls("verify-full", Path("/etc/ca.crt"), Path("/etc/me.crt"), Path("/etc/me.key"))
    assert parse_store_url(found.tool_address.replace("ann@", "ann:s%40cret@")) == found


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/llmgw", "mysql"),
        ("postgresql+psycopg2://a@db/llmgw", "psycopg2"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///a.db?mode=ro", "names no file"),
        ("sqlite:///llmgw.db", "not an absolute path"),
        ("/var/lib/llmgw.db", "'/var/lib/llmgw.db' is not a store address"),
        ("", "not a store address"),
        ("postgresql://a@db", "names no database"),
        ("postgresql://db/llmgw", "names no user"),
        ("postgresql://a@/llmgw", "names no host"),
        ("postgresql://a@db:x/llmgw", "not a store address"),
        ("postgresql://a@db:70000/llmgw", "70000 is no port"),
        ("postgresql://a@one,two/llmgw", "several hosts"),
        ("postgresql://a@db/llmgw?host=/run", "without a host before it"),
        ("postgresql://a@/llmgw?host=run", "absolute folder"),
        ("postgresql://a@/llmgw?host=/run&sslmode=require", "sslmode has no effect on a Unix socket"),
        ("postgresql://a@db/llmgw?ssl=true", "option 'ssl' is not known; there are host, sslmode"),
        ("postgresql://a@db/llmgw?sslmode=on", "sslmode=on is not known; there are disable"),
        ("postgresql://a@db/llmgw?sslmode=require&sslmode=disable", "exactly one value"),
        ("postgresql://a@db/llmgw?sslrootcert=/a", "sslrootcert has no effect with sslmode=prefer"),
        ("postgresql://a@db/llmgw?sslmode=require&sslrootcert=/a", "write sslmode=verify-full"),
        ("postgresql://a@db/llmgw?sslmode=disable&sslcert=/a", "sslcert has no effect"),
        ("postgresql://a@db/llmgw?sslmode=require&sslkey=/a", "sslkey is for an sslcert"),
        ("postgresql://a@db/llmgw?sslmode=verify-ca&sslrootcert=a", "not an absolute path"),
    ],
)
def test_any_other_address_is_refused_with_what_is_accepted(url: str, said: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        parse_store_url(url)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        SERVER + "?password=s@cret",
        SERVER + "?sslmode=x",
        "postgresql://ann:s@cret@db:port/llmgw",
        "postgresql:ann:s@cret@db/llmgw",
        "postgresql://ann:s@cret",
        "postgresql://ann:s@cret@/",
        "mysql://ann:s@cret@db/llmgw",
        "sqlite://ann:s@cret@db/llmgw",
        "ann:s@cret",
    ],
)
def test_a_refusal_never_tells_a_password(url: str) -> None:
    with pytest.raises(BadStoreUrl) as refused:
        parse_store_url(url)
    assert "cret" not in str(refused.value)


def test_a_server_never_tells_its_password() -> None:
    server = parse_store_url(SERVER)
    assert isinstance(server, PostgresServer)
    for said in (repr(server), str(server), server.name, server.tool_address):
        assert "cret" not in said
        assert "ann@db.example:6432/llmgw" in said


# ---------------------------------------------------------------- what the driver is given


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require"])
def test_without_certificates_the_driver_knows_the_mode(mode: str) -> None:
    assert Tls(mode).setting() == mode


@pytest.mark.parametrize(("mode", "names"), [("verify-ca", False), ("verify-full", True)])
def test_a_server_is_verified_against_what_this_machine_trusts(mode: str, names: bool) -> None:
    context = Tls(mode).setting()
    assert isinstance(context, ssl.SSLContext)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, names)


def test_files_that_are_not_there_are_said_so(tmp_path: Path) -> None:
    for tls in (Tls("verify-ca", tmp_path / "none"), Tls("require", None, tmp_path / "none")):
        with pytest.raises(FileNotFoundError):
            tls.setting()
