"""What an error of the server means to a job, and what to do about it."""

from __future__ import annotations

import pymysql
import pytest

from twophase.errors import PreflightError, TargetUnreachableError
from twophase.sinks.mysql.client.refusals import explain
from twophase.sinks.mysql.options import Endpoint, Replaceable, Tls

ANSWERED = (1040, 1044, 1045, 1114, 1129, 1203, 1205, 1226, 1290, 1820, 3159, 9999)
GONE = (2002, 2003, 2006, 2013)


def explained(
    code: int, *, opened: bool, said: str = "no"
) -> PreflightError | TargetUnreachableError:
    endpoint = Endpoint("db", 3306, "app", "shop", Replaceable(""), Tls.OFF, opened=opened)
    return explain(endpoint, pymysql.OperationalError(code, said), "The login at")


@pytest.mark.parametrize("code", [*ANSWERED, *GONE])
@pytest.mark.parametrize("opened", [False, True])
def test_only_a_server_that_has_not_answered_is_to_be_started(code: int, opened: bool) -> None:
    error = explained(code, opened=opened)
    assert f"The login at app@db:3306 failed: no ({code})." in error.what
    assert ("start the server" in error.remedy) == (code in GONE)


@pytest.mark.parametrize("opened", [False, True])
def test_a_server_without_a_free_connection_may_have_one_later(opened: bool) -> None:
    error = explained(1040, opened=opened)
    assert isinstance(error, TargetUnreachableError)
    assert "max_connections" in error.remedy


@pytest.mark.parametrize("code", [1045, 1820, 9999])
def test_what_is_refused_ends_a_start_alone(code: int) -> None:
    assert isinstance(explained(code, opened=False), PreflightError)
    assert isinstance(explained(code, opened=True), TargetUnreachableError)


def running_with(option: str) -> str:
    return f"The MySQL server is running with the {option} option so it cannot execute this"


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (1290, running_with("--read-only"), TargetUnreachableError),
        (1290, running_with("--super-read-only"), TargetUnreachableError),
        (1290, running_with("--secure-file-priv"), PreflightError),
        (1290, running_with("--skip-grant-tables"), PreflightError),
        (1203, "User app already has more than 'max_user_connections'", TargetUnreachableError),
        (1226, "User 'app' has exceeded the 'max_questions' resource", TargetUnreachableError),
        (1836, "Running in read-only mode", TargetUnreachableError),
        (1874, "InnoDB is in read only mode.", TargetUnreachableError),
        (3032, "The server is currently in offline mode", TargetUnreachableError),
        (3168, "Server isn't available", TargetUnreachableError),
        (3169, "Session was killed", TargetUnreachableError),
        (4031, "The client was disconnected by the server", TargetUnreachableError),
    ],
)
def test_a_state_of_the_server_that_passes_by_itself_has_a_start_repeated(
    code: int, said: str, kind: type[Exception]
) -> None:
    assert type(explained(code, said=said, opened=False)) is kind
    assert type(explained(code, said=said, opened=True)) is TargetUnreachableError
