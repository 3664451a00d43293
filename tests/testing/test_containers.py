"""Containers without an engine: which image is meant, how it is configured, and what is said where
none can be started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from twophase.errors import ServiceError
from twophase.testing.containers import (
    KafkaContainer,
    MariaDbContainer,
    MySqlContainer,
    engine_problem,
)
from twophase.testing.containers.kafka import variable_of

ROOT = Path(__file__).parents[2]
KINDS: list[tuple[Callable[..., KafkaContainer | MySqlContainer | MariaDbContainer], str, str]] = [
    (KafkaContainer, "TWOPHASE_KAFKA_IMAGE", "apache/kafka:4.1.1"),
    (MySqlContainer, "TWOPHASE_MYSQL_IMAGE", "mysql:8.0"),
    (MariaDbContainer, "TWOPHASE_MARIADB_IMAGE", "mariadb:10.11"),
]
SUITE = """
from twophase.testing.containers import docker_engine, kafka_container, mariadb_container, mysql_container

def test_kafka(kafka_container): ...
def test_mysql(mysql_container): ...
def test_mariadb(mariadb_container): ...
def test_engine(docker_engine): ...
"""  # noqa: E501


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """DOCKER_HOST leads to nobody."""
    address = f"unix://{tmp_path}/nobody.sock"
    monkeypatch.setenv("DOCKER_HOST", address)
    return address


def run_suite(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A suite of a user, in a pytest of its own."""
    (folder / "test_suite.py").write_text(SUITE)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-ra",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            str(folder),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("kind", "variable", "public"), KINDS)
def test_the_image_is_the_argument_else_the_variable_else_public(
    kind: Callable[..., KafkaContainer], variable: str, public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert kind().image == public
    monkeypatch.setenv(variable, "registry.example/ours:1")
    assert kind().image == "registry.example/ours:1"
    assert kind(image="mine:2").image == "mine:2"


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("log.dirs", "KAFKA_LOG_DIRS"),
        ("a.b_c-d", "KAFKA_A_B__C___D"),
    ],
)
def test_a_key_of_kafka_becomes_the_variable_that_its_image_reads(key: str, variable: str) -> None:
    assert variable_of(key) == variable


@pytest.mark.parametrize("kind", [kind for kind, _, _ in KINDS])
def test_without_an_engine_a_start_says_what_to_do(
    kind: Callable[..., KafkaContainer], no_engine: str
) -> None:
    container = kind()
    with pytest.raises(
        ServiceError, match=r"(?s)No Docker engine answers.*Next: start one .*DOCKER_HOST"
    ):
        container.start()
    container.stop()


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_the_problem_is_a_text() -> None:
    problem = engine_problem()
    assert problem is not None
    assert problem.startswith("No Docker engine answers")


def test_without_an_engine_the_tests_of_a_suite_are_skipped_and_say_why(
    tmp_path: Path, no_engine: str
) -> None:
    done = run_suite(tmp_path, DOCKER_HOST=no_engine, TWOPHASE_DOCKER="")
    assert done.returncode == 0, done.stdout
    assert "4 skipped" in done.stdout
    assert "SKIPPED" in done.stdout
    assert "No Docker engine answers" in done.stdout


def test_a_required_engine_that_is_away_fails_them(tmp_path: Path, no_engine: str) -> None:
    done = run_suite(tmp_path, DOCKER_HOST=no_engine, TWOPHASE_DOCKER="required")
    assert done.returncode == 1, done.stdout
    assert "4 errors" in done.stdout
    assert "TWOPHASE_DOCKER says that it is required" in done.stdout


@pytest.mark.parametrize("absent", ["testcontainers", "docker"])
def test_without_its_packages_the_module_says_what_to_install(absent: str) -> None:
    code = f"import sys; sys.modules[{absent!r}] = None; import twophase.testing.containers"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Next: pip install 'twophase[testing]'" in done.stderr


def test_what_needs_a_started_container_says_so() -> None:
    for ask in (
        lambda: KafkaContainer().bootstrap_servers,
        lambda: MySqlContainer().port,
        MySqlContainer().kill,
        MariaDbContainer().restart,
        lambda: MariaDbContainer().log,
    ):
        with pytest.raises(ServiceError, match="is not started"):
            ask()


def test_an_option_of_a_server_has_two_dashes() -> None:
    with pytest.raises(ServiceError, match="does not begin with --"):
        MySqlContainer(server_options=["innodb-lock-wait-timeout=7"])
    assert MySqlContainer(server_options=["--innodb-lock-wait-timeout=7"]).image
