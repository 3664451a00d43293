"""What each known reply of a database means to a start, and to a running job."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from sqlalchemy.exc import OperationalError

from harness.iceberg_harness import IcebergHarness
from twophase.errors import PreflightError, TargetUnreachableError
from twophase.sinks.common.mysql_replies import CONNECTION_LOST, NOT_NOW, remedies
from twophase.sinks.iceberg.options import IcebergOptions
from twophase.sinks.iceberg.sql_catalog import DatabaseCatalog

REFUSED = remedies("catalog_uri").keys()
PASSING = (CONNECTION_LOST | NOT_NOW) - REFUSED


def reply(*arguments: object) -> OperationalError:
    return OperationalError("SELECT 1", {}, pymysql.OperationalError(*arguments))


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        *((reply(code, "busy"), TargetUnreachableError, "") for code in sorted(PASSING)),
        *((reply(code, "no"), PreflightError, remedies("catalog_uri")[code]) for code in REFUSED),
        (reply("database is locked"), TargetUnreachableError, ""),
        (reply("attempt to write a readonly database"), PreflightError, ""),
        (reply(1064, "syntax"), PreflightError, ""),
        (reply(), PreflightError, ""),
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
