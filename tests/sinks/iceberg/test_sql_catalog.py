"""What each known reply of a database means to a start, and to a running job."""

from __future__ import annotations

import ssl
from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import CR
from sqlalchemy.exc import OperationalError

from harness.certificate_authority import FolderAuthority
from harness.iceberg_harness import IcebergHarness
from tests.sinks.mysql.client.fake_server import FakeServer, OtherPeer
from twophase.errors import ConfigError, PreflightError, TargetUnreachableError, TwoPhaseError
from twophase.sinks.common.mysql_replies import CONNECTION_LOST, NOT_NOW, remedies
from twophase.sinks.iceberg import sql_catalog
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.iceberg.sql_catalog import DatabaseCatalog

BY_THEMSELVES = 1203, 1226, 1836, 1874
"""And 1290, if it names that the server is read-only."""
REFUSED = remedies("catalog_uri").keys() - {*BY_THEMSELVES}
PASSING = (CONNECTION_LOST | NOT_NOW) - REFUSED - {CR.CR_SSL_CONNECTION_ERROR}
TLS = "give the server a certificate for its name, and name the file of its authority in tls_ca."


def reply(*arguments: object, because: Exception | None = None) -> OperationalError:
    error = pymysql.OperationalError(*arguments)
    error.original_exception = because  # type: ignore[attr-defined]
    return OperationalError("SELECT 1", {}, error)


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        *((reply(code, "busy"), TargetUnreachableError, "") for code in sorted(PASSING)),
        *((reply(code, "no"), PreflightError, remedies("catalog_uri")[code]) for code in REFUSED),
        *(
            (reply(code, "read-only"), TargetUnreachableError, remedies("catalog_uri")[code])
            for code in (1290, *BY_THEMSELVES)
        ),
        (reply("database is locked"), TargetUnreachableError, ""),
        (reply("attempt to write a readonly database"), PreflightError, ""),
        (reply(1064, "syntax"), PreflightError, ""),
        (reply(), PreflightError, ""),
        (reply(CR.CR_SSL_CONNECTION_ERROR, "TLS is required"), PreflightError, TLS),
        (reply(2003, "no", because=ssl.SSLCertVerificationError("no")), PreflightError, TLS),
        (reply(2003, "no", because=ssl.SSLEOFError("it died")), TargetUnreachableError, ""),
    ],
    ids=lambda value: str(value.orig) if isinstance(value, OperationalError) else "",
)
def test_what_may_pass_starts_again_and_what_does_not_ends_the_start(
    tmp_path: Path, error: OperationalError, kind: type[Exception], remedy: str
) -> None:
    given = {**IcebergHarness(tmp_path).place.options, "table": "a.b"}
    options = IcebergOptions.parse(given, "IcebergSink")
    with closing(DatabaseCatalog(options, make=True)) as catalog:
        before, catalog._is_open = catalog._explain(error), True
        assert type(before) is kind
        assert type(catalog._explain(error)) is TargetUnreachableError
    if remedy and "GRANT" not in remedy:
        assert before.remedy == remedy


def test_a_server_that_says_nothing_is_unreachable_within_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_catalog, "_DEADLINE_S", 1)
    with OtherPeer(b"", stays=True) as peer:
        uri = f"mysql://lake@127.0.0.1:{peer.port}/shop"
        with pytest.raises(TargetUnreachableError, match="timed out"):
            IcebergHarness(tmp_path / "lake", catalog_uri=uri).opened()


# -- TLS -------------------------------------------------------------------------------------------


class Server(FakeServer):
    """Serves two connections: where one fails pyiceberg tells nobody, and tries another."""

    def _serve(self) -> None:
        super()._serve()
        super()._serve()


def refused(folder: Path, server: FakeServer, authorities: Path, says: str) -> TwoPhaseError:
    """It is not logged in to."""
    options = {
        "catalog_uri": f"mysql://lake@127.0.0.1:{server.port}/shop",
        "tls_ca": str(authorities),
    }
    with pytest.raises(PreflightError, match=says) as caught:
        IcebergHarness(folder / "lake", **options).opened()
    server.finish()
    assert server.received == []
    return caught.value


def authority_in(folder: Path) -> FolderAuthority:
    folder.mkdir()
    return FolderAuthority(folder)


@pytest.mark.parametrize(
    ("name", "is_known", "says"),
    [
        ("127.0.0.1", False, "is not trusted: .* CERTIFICATE_VERIFY_FAILED"),
        ("127.0.0.2", True, "is not trusted: .* CERTIFICATE_VERIFY_FAILED.* IP address mismatch"),
    ],
    ids=["of another authority", "of another address"],
)
def test_a_server_with_another_certificate_is_named_before_the_login(
    tmp_path: Path, name: str, is_known: bool, says: str
) -> None:
    own, other = authority_in(tmp_path / "own"), authority_in(tmp_path / "other")
    with Server(tls=own.server(name)) as server:
        error = refused(tmp_path, server, (own if is_known else other).file, says)
    assert error.remedy == TLS


def test_a_server_without_tls_is_named_before_the_login(tmp_path: Path) -> None:
    """Somebody between it and the driver may have taken the offer out."""
    with Server() as server:
        error = refused(
            tmp_path, server, authority_in(tmp_path / "own").file, "is not trusted: .* required"
        )
    assert error.remedy == TLS


@pytest.mark.parametrize("content", [None, b"", b"no certificate\n"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    harness = IcebergHarness(
        tmp_path / "lake", catalog_uri="mysql://lake@127.0.0.1:1/shop", tls_ca=str(file)
    )
    with pytest.raises(PreflightError, match=f"'{file}', named by tls_ca, holds no certificates"):
        harness.opened()


def test_a_file_needs_no_certificates(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tls_ca is of another kind of catalog"):
        IcebergHarness(tmp_path / "lake", tls_ca="/ca.pem").opened()
