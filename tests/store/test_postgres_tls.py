"""Judges how far a connection to a PostgreSQL server is protected, on a real one that speaks TLS."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from llmgw.ports import StoreUnavailable
from llmgw.store.opening import open_database
from tests.conftest import ran_on, running_cluster, tool
from tests.support.postgres import PostgresCluster

# Whoever comes over the network encrypts; the user `certified` shows a certificate besides.
ACCESS = """\
local all all scram-sha-256
hostssl all certified all scram-sha-256 clientcert=verify-ca
hostssl all all all scram-sha-256
host all postgres all scram-sha-256
"""


class Files(NamedTuple):
    """What a small authority hands out."""

    authority: Path
    stranger: Path  # another authority
    client: Path
    client_key: Path


class Secured(NamedTuple):
    cluster: PostgresCluster
    database: str
    files: Files

    def url(self, query: str, *, host: str = "127.0.0.1", **who: str) -> str:
        return self.cluster.url(self.database, query=query, **who).replace("127.0.0.1", host)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server whose certificate is for 127.0.0.1, and not for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    for cluster in running_cluster():
        for authority in ("authority", "stranger"):
            _make(folder, authority, "-x509", "-subj", f"/CN={authority}", "-days", "2")
        _issue(folder, "server", "subjectAltName=IP:127.0.0.1")
        _issue(folder, "client", "subjectAltName=DNS:client")
        names = ("server.crt", "server.key", "authority.crt")
        certificate, key, authority_file = (cluster.own(folder / name) for name in names)
        settings = {"ssl_cert_file": certificate, "ssl_key_file": key, "ssl_ca_file": authority_file}
        cluster.configure(
            {"ssl": "on", **{name: str(file) for name, file in settings.items()}}, access=ACCESS
        )
        cluster.sql("CREATE ROLE certified LOGIN PASSWORD 'plain'")
        files = [folder / name for name in ("authority.crt", "stranger.crt", "client.crt", "client.key")]
        yield Secured(cluster, cluster.database(), Files(*files))


def _make(folder: Path, name: str, *options: str) -> None:
    key, out = folder / f"{name}.key", folder / f"{name}.{'crt' if '-x509' in options else 'csr'}"
    _openssl("req", "-new", "-nodes", "-newkey", "rsa:2048", "-keyout", str(key), "-out", str(out), *options)


def _issue(folder: Path, name: str, names: str) -> None:
    _make(folder, name, "-subj", f"/CN={name}")
    (folder / f"{name}.ext").write_text(names)
    signer = (
        "-CA",
        str(folder / "authority.crt"),
        "-CAkey",
        str(folder / "authority.key"),
        "-CAcreateserial",
    )
    request, out = str(folder / f"{name}.csr"), str(folder / f"{name}.crt")
    extra = ("-extfile", str(folder / f"{name}.ext"), "-days", "2")
    _openssl("x509", "-req", "-in", request, "-out", out, *signer, *extra)


def _openssl(*arguments: str) -> None:
    subprocess.run([tool("openssl"), *arguments], check=True, capture_output=True, timeout=30)


@pytest.fixture(autouse=True)
def counted(request: pytest.FixtureRequest) -> None:
    ran_on(request, "postgresql")


async def encrypted(url: str) -> bool:
    """Whether the connection is, as the server sees it. Raises `StoreUnavailable`."""
    asked = sa.text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    database = open_database(url)
    try:
        return bool(await database.run(lambda c: c.scalar(asked)))
    finally:
        await database.aclose()


@pytest.mark.parametrize("query", ["", "?sslmode=prefer", "?sslmode=require", "?sslmode=allow"])
async def test_a_server_that_speaks_tls_is_spoken_to_in_tls(secured: Secured, query: str) -> None:
    assert await encrypted(secured.url(query))


async def test_without_tls_a_server_that_demands_it_says_so(secured: Secured) -> None:
    with pytest.raises(StoreUnavailable, match="no encryption"):
        await encrypted(secured.url("?sslmode=disable"))


async def test_a_server_is_verified_by_its_authority_and_its_name(secured: Secured) -> None:
    query = f"&sslrootcert={secured.files.authority}"
    assert await encrypted(secured.url("?sslmode=verify-full" + query))
    assert await encrypted(secured.url("?sslmode=verify-ca" + query, host="localhost"))
    with pytest.raises(StoreUnavailable, match=r"cannot connect: .*mismatch"):
        await encrypted(secured.url("?sslmode=verify-full" + query, host="localhost"))


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_a_server_of_another_authority_is_refused(secured: Secured, mode: str) -> None:
    for query in (f"?sslmode={mode}", f"?sslmode={mode}&sslrootcert={secured.files.stranger}"):
        with pytest.raises(StoreUnavailable, match=r"cannot connect: .*certificate verify failed"):
            await encrypted(secured.url(query))


async def test_a_certificate_of_ours_is_shown(secured: Secured) -> None:
    who = {"user": "certified", "password": "plain"}
    shown = f"&sslcert={secured.files.client}&sslkey={secured.files.client_key}"
    assert await encrypted(secured.url("?sslmode=require" + shown, **who))
    query = f"?sslmode=verify-full&sslrootcert={secured.files.authority}"
    assert await encrypted(secured.url(query + shown, **who))
    with pytest.raises(StoreUnavailable, match="requires a valid client certificate"):
        await encrypted(secured.url(query, **who))


async def test_a_file_that_is_no_certificate_is_said_in_one_line(secured: Secured, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(StoreUnavailable, match=r"cannot connect: .*certificate"):
        await encrypted(secured.url(f"?sslmode=verify-ca&sslrootcert={tmp_path / 'ca.crt'}"))
    with pytest.raises(StoreUnavailable, match="cannot connect: No such file"):
        await encrypted(secured.url(f"?sslmode=verify-ca&sslrootcert={tmp_path / 'none.crt'}"))


async def test_tls_is_not_given_up_where_the_server_has_none(postgres: PostgresCluster) -> None:
    for mode in ("require", "verify-ca"):
        with pytest.raises(StoreUnavailable, match=r"cannot connect: .*SSL"):
            await encrypted(postgres.url("postgres", query=f"?sslmode={mode}"))
    assert not await encrypted(postgres.url("postgres"))
