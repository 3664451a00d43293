"""Starts Spark for `twophase run`: quiet, quick to start, on this same Python, in this process."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from twophase.cli.display.output import SparkOutput
from twophase.cli.display.text import clean
from twophase.cli.gateway import slow_down_optimiser, start_jvm
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.jobfile.sink_types import modules_of_workers, spark_conf
from twophase.cli.signals import kept_handlers
from twophase.contract.sink import Sink
from twophase.errors import PreflightError
from twophase.internals.failpoints import be_the_driver
from twophase.spark.startup import packages
from twophase.spark.startup.class_archive import ClassArchive
from twophase.spark.startup.daemon import MODULE
from twophase.spark.startup.first_processes import skip_lookup
from twophase.spark.startup.quick_start import (
    DAEMON_KEY,
    DRIVER_PYTHON_VARIABLE,
    PYTHON_VARIABLE,
    find_archive,
    is_switched_off,
    jvm_environment,
)

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_CONFIGURATION = "log4j2.configurationFile"
_QUIET = Path(__file__).with_name("log4j2.properties")

_log = logging.getLogger("twophase")


@dataclass(frozen=True)
class Start:
    """The settings that Spark starts with.

    Attributes:
        name: the application's name.
        master: as `spark-submit --master`; None leaves it to Spark.
        conf: Spark's configuration.
        quick: use everything that makes Spark start quickly.
        preload: modules that the workers need.
        verbose: leave logging to Spark's own configuration.
    """

    name: str
    master: str | None
    conf: Mapping[str, str]
    quick: bool
    preload: Sequence[str]
    verbose: bool


def start_of(job: JobFile, sinks: Mapping[str, Sink], *, verbose: bool) -> Start:
    """Return the settings that a job file and its sinks ask for."""
    quick = job.spark.quick_start and not is_switched_off()
    conf, modules = spark_conf(job, sinks), modules_of_workers(job, sinks)
    return Start(job.name, job.spark.master, conf, quick, modules, verbose)


@dataclass(frozen=True)
class Started:
    """A running Spark.

    Attributes:
        session: the Spark session.
        archive: the archive that the JVM took its classes from, or could have; None if
            there can be none.
    """

    session: SparkSession
    archive: ClassArchive | None


@contextmanager
def spark_session(
    start: Start, output: SparkOutput, meanwhile: Callable[[], object] = lambda: None
) -> Iterator[Started]:
    """Start Spark, and stop it at the end.

    Args:
        start: the settings.
        output: receives what Spark and its workers print.
        meanwhile: called while the JVM starts.

    Raises:
        PreflightError: Spark does not start.
        Exception: what `meanwhile` raises; there is no Spark then.
    """
    be_the_driver()
    conf, jars = _with_known_jars(start.conf)
    archive = find_archive(jars or (), conf) if start.quick else None
    configuration = _configuration(start, conf if jars is not None else _fetching(conf))
    is_this_python = not {PYTHON_VARIABLE, DRIVER_PYTHON_VARIABLE} & {*os.environ}
    begin = partial(_start, start, configuration, archive, output, fetching=jars is None)
    context = _begun(begin, meanwhile, output)
    try:
        if jars is None:
            archive = _note_jars(conf, context) if start.quick else None
        session = SparkSession.builder.getOrCreate()
        if start.quick and is_this_python:
            skip_lookup(session)
        yield Started(session, archive)
    finally:
        _stop(context)


def _begun(
    begin: Callable[[Callable[[], object]], SparkContext],
    meanwhile: Callable[[], object],
    output: SparkOutput,
) -> SparkContext:
    """Start Spark with `begin`, or say why it does not; errors of `meanwhile` pass as they are."""
    of_meanwhile: list[Exception] = []

    def noted() -> None:
        try:
            meanwhile()
        except Exception as error:
            of_meanwhile.append(error)
            raise

    try:
        return begin(noted)
    except Exception as error:
        if error in of_meanwhile:
            raise
        output.print_kept()
        raise _does_not_start(error) from error


def _does_not_start(error: Exception) -> PreflightError:
    return PreflightError(
        f"Spark failed to start: {clean(str(error))[:300]}.",
        remedy="check that Java 17 or 21 is on the PATH, and the spark section of the job file.",
    )


def _start(
    start: Start,
    configuration: SparkConf,
    archive: ClassArchive | None,
    output: SparkOutput,
    meanwhile: Callable[[], object],
    *,
    fetching: bool,
) -> SparkContext:
    added = jvm_environment(archive, preload=start.preload) if start.quick else {}
    environment = {PYTHON_VARIABLE: _python(), **added}
    output.fetching = fetching
    if fetching:
        output.print_line(
            f"Spark resolves {configuration.get(packages.PACKAGES)}; the first start downloads it"
        )
    with output.open() as file:
        gateway = start_jvm(configuration, environment, file, meanwhile)
    output.fetching = False
    if start.quick:
        slow_down_optimiser(gateway.proc.pid)
    # Workers on other machines do not have our cache folder, nor perhaps this package.
    if _is_local(gateway) and start.quick:
        os.environ.setdefault(PYTHON_VARIABLE, environment[PYTHON_VARIABLE])
        if not gateway.jvm.SparkConf().contains(DAEMON_KEY):
            configuration.set(DAEMON_KEY, MODULE)
    os.environ.setdefault(PYTHON_VARIABLE, _python())
    with kept_handlers():
        return SparkContext(conf=configuration, gateway=gateway)


def _python() -> str:
    return os.environ.get(PYTHON_VARIABLE) or sys.executable


def _is_local(gateway: Any) -> bool:
    return str(gateway.jvm.SparkConf().get("spark.master", "local[*]")).startswith("local")


def _configuration(start: Start, conf: Mapping[str, str]) -> SparkConf:
    made = SparkConf().setAppName(start.name)
    made.set("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        made.set(key, value)
    if start.master is not None:
        made.setMaster(start.master)
    java_options = made.get(_JAVA_OPTIONS) or ""
    if not start.verbose and _LOG_CONFIGURATION not in java_options:
        made.set(_JAVA_OPTIONS, f"{java_options} -D{_LOG_CONFIGURATION}={_QUIET.as_uri()}".strip())
    return made


def _with_known_jars(conf: Mapping[str, str]) -> tuple[Mapping[str, str], Sequence[Path] | None]:
    """Return settings with jars instead of packages, and the jars; None if Spark must find them."""
    if not conf.get(packages.PACKAGES):
        return conf, ()
    conf = packages.without_installed(conf)
    if not conf[packages.PACKAGES]:
        return conf, ()
    try:
        jars = packages.known_jars(conf)
    except OSError as error:
        _log.debug("no note of the packages' jars: %s", error)
        jars = None
    return (conf, None) if jars is None else (packages.with_jars(conf, jars), jars)


def _fetching(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings with which Spark fetches packages."""
    try:
        return packages.without_local_maven(conf)
    except OSError as error:
        _log.debug("Ivy looks into the local Maven folder too: %s", error)
        return conf


def _note_jars(conf: Mapping[str, str], context: SparkContext) -> ClassArchive | None:
    try:
        packages.note_jars(conf, context.getConf().get(packages.JARS) or "")
        jars = packages.known_jars(conf)
    except OSError as error:
        _log.debug("the packages' jars are not noted: %s", error)
        return None
    return None if jars is None else find_archive(jars, conf)


def _stop(context: SparkContext) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # PySpark's, of a JVM that is gone
            context.stop()
    except Exception:  # noqa: BLE001 Spark may be dead already; the command ends in any case
        _log.debug("Spark did not stop", exc_info=True)
