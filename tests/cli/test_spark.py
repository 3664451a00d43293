"""What `twophase run` tells of Spark's start, without one: the JVM is refused."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from twophase.cli import spark
from twophase.cli.display.output import SparkOutput
from twophase.cli.spark import Start, spark_session
from twophase.errors import PreflightError
from twophase.internals.failpoints import DRIVER_VARIABLE
from twophase.spark.startup.packages import PACKAGES, note_jars

CONF = {PACKAGES: "org:one:1"}
LOOKS = "Spark resolves org:one:1; the first start downloads it"


@pytest.fixture(autouse=True)
def _no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no JVM in this test")

    monkeypatch.setattr(spark, "start_jvm", refuse)
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(DRIVER_VARIABLE, "")  # a start sets it; it is to be as before


def printed(conf: Mapping[str, str]) -> list[str]:
    """What is printed before the JVM is there."""
    lines: list[str] = []
    start = Start("orders", None, conf, quick=False, preload=(), verbose=False)
    with (
        pytest.raises(PreflightError, match="no JVM in this test"),
        spark_session(start, SparkOutput(lines.append)),
    ):
        pytest.fail("Spark has started")
    return lines


def test_a_start_that_may_fetch_packages_says_so_in_one_line() -> None:
    assert printed(CONF) == [LOOKS]


def test_a_start_without_packages_or_with_known_ones_says_nothing(tmp_path: Path) -> None:
    assert printed({}) == []
    jar = tmp_path / "one.jar"
    zipfile.ZipFile(jar, "w").close()
    note_jars(CONF, jar.as_uri())
    assert printed(CONF) == []
    jar.unlink()
    assert printed(CONF) == [LOOKS]


@pytest.mark.parametrize("error", [ValueError("mine"), PreflightError("mine", remedy="mend it.")])
def test_an_error_of_what_is_done_meanwhile_is_not_one_of_spark(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def start_jvm(*arguments: Any) -> None:
        arguments[-1]()

    def meanwhile() -> None:
        raise error

    monkeypatch.setattr(spark, "start_jvm", start_jvm)
    start = Start("orders", None, {}, quick=False, preload=(), verbose=False)
    with pytest.raises(type(error)) as raised, spark_session(start, SparkOutput(print), meanwhile):
        pytest.fail("Spark has started")
    assert raised.value is error


def test_a_start_looks_only_for_packages_that_are_not_installed_with_spark() -> None:
    installed = f"org.apache.spark:spark-core_2.13:{pyspark.__version__}"
    assert printed({PACKAGES: f"org:one:1,{installed}"}) == [LOOKS]
    assert printed({PACKAGES: installed}) == []


class Gone:
    """The JVM's side of a context that has ended before."""

    def stop(self) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_a_stop_says_nothing_of_a_jvm_that_has_ended_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a stop forgets the active context, which is that of other tests
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    context = SparkContext.__new__(SparkContext)
    context._jsc = Gone()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        spark._stop(context)
    assert not found
    assert context._jsc is None
