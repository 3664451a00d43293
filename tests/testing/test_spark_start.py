"""A quick start of Spark is still a start of the same Spark, in the same Python."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from twophase.spark.startup.class_archive import ClassArchive, takes_archives
from twophase.spark.startup.java import java_version
from twophase.testing.services import spark_start
from twophase.testing.services.delta import delta_jars
from twophase.testing.services.kafka_program import class_archive_options
from twophase.testing.services.spark_start import (
    record_spark_classes,
    record_spark_classes_behind,
    spark_environment,
)

ZIPS = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip"


def worker_path(path: str) -> list[str]:
    """What the workers' Python sees when Spark starts it with this PYTHONPATH."""
    program = spark_environment()["PYSPARK_PYTHON"]
    printed = subprocess.run(
        [program, "-c", "import os, sys; print(sys.executable); print(os.environ['PYTHONPATH'])"],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert printed[0] == sys.executable
    return printed[1].split(":") if len(printed) > 1 and printed[1] else []


def test_the_workers_python_is_this_one_without_sparks_zips_on_its_path() -> None:
    assert worker_path(f"{ZIPS}:/work of mine:/more") == ["/work of mine", "/more"]
    assert worker_path(f"/work:{ZIPS}") == ["/work"]
    assert worker_path(ZIPS) == []
    assert worker_path("") == []


def test_the_workers_import_the_installed_pyspark() -> None:
    program = spark_environment()["PYSPARK_PYTHON"]
    printed = subprocess.check_output(
        [program, "-c", "import pyspark; print(pyspark.__file__)"], text=True
    )
    assert printed.startswith(sysconfig.get_path("purelib"))


def test_more_of_sparks_configuration_is_handed_on() -> None:
    arguments = shlex.split(spark_environment({"spark.a": "b c"})["PYSPARK_SUBMIT_ARGS"])
    assert arguments[-3:] == ["--conf", "spark.a=b c", "pyspark-shell"]


def test_no_start_waits_for_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than it saves the first start."""
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path))
    assert "SharedArchiveFile" not in spark_environment()["SPARK_SUBMIT_OPTS"]
    assert class_archive_options() == []
    assert not list(tmp_path.glob("*classes*"))


@pytest.mark.parametrize("is_due", [True, False])
def test_a_recording_behind_is_begun_only_if_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_due: bool
) -> None:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(spark_start, "takes_archives", lambda _: True)
    begun: list[ClassArchive] = []
    monkeypatch.setattr(
        spark_start, "record_in_background", lambda archive, _: begun.append(archive)
    )
    if not is_due:  # it was tried lately
        ClassArchive(delta_jars()).folder.mkdir()
    assert record_spark_classes_behind() is is_due
    assert len(begun) == is_due


@pytest.mark.spark
def test_the_archive_was_recorded_and_is_used_where_java_takes_it(tmp_path: Path) -> None:
    """A JVM that does not accept it says nothing, and takes twice as long."""
    record_spark_classes()
    loaded = tmp_path / "loaded"
    environment = spark_environment({"spark.ui.enabled": "false"})
    environment["SPARK_SUBMIT_OPTS"] += f" -Xlog:class+load:file={loaded}"
    program = (
        "from pyspark.sql import SparkSession; "
        "SparkSession.builder.master('local[1]').getOrCreate().stop()"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        check=True,
        capture_output=True,
    )
    [line] = [
        line
        for line in loaded.read_text().splitlines()
        if " org.apache.spark.SparkContext source: " in line
    ]
    assert line.endswith("shared objects file (top)") is takes_archives(java_version())


@pytest.mark.spark
def test_the_rehearsal_was_whole_where_there_was_one() -> None:
    """A sink that could not be rehearsed is not in the archive, and nobody would notice."""
    record_spark_classes()
    archive = ClassArchive(delta_jars())
    assert bool(archive.options()) is takes_archives(java_version())
    log = archive.folder / "recording.log"
    assert "was not rehearsed" not in (log.read_text() if log.exists() else "")
