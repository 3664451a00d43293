"""The Spark of `twophase run`: quiet, on this very Python, in this process."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from twophase.cli.text import clean
from twophase.errors import PreflightError
from twophase.failpoints import DRIVER_VARIABLE

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_CONFIGURATION = "log4j2.configurationFile"
_QUIET = Path(__file__).with_name("log4j2.properties")
_JAVA_GREETING = "WARNING: Using incubator modules: jdk.incubator.vector"  # Spark asks for it, nothing turns it off

_log = logging.getLogger("twophase")


@contextmanager
def spark_session(
    name: str, master: str | None, conf: Mapping[str, str], print_line: Callable[[str], None], *, verbose: bool
) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end.

    Args:
        name: of the application.
        master: as `spark-submit --master`; None leaves it to Spark.
        conf: of Spark.
        print_line: gets what Spark and its workers print, line by line, in a thread of its own.
        verbose: leave logging to Spark's own configuration.

    Raises:
        PreflightError: Spark does not start.
    """
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    configuration = _configuration(name, master, conf, verbose=verbose)
    try:
        with _pump(print_line) as output:
            gateway = launch_gateway(configuration, {"stderr": output})  # type: ignore[no-untyped-call]
        context = SparkContext(conf=configuration, gateway=gateway)
    except Exception as error:
        raise PreflightError(
            f"Spark does not start: {clean(str(error))[:300]}.",
            remedy="check that Java 17 or 21 is on the PATH, and the spark section of the job file.",
        ) from error
    try:
        yield SparkSession.builder.getOrCreate()
    finally:
        _stop(context)


def _configuration(name: str, master: str | None, conf: Mapping[str, str], *, verbose: bool) -> SparkConf:
    made = SparkConf().setAppName(name)
    made.set("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        made.set(key, value)
    if master is not None:
        made.setMaster(master)
    java_options = made.get(_JAVA_OPTIONS) or ""
    if not verbose and _LOG_CONFIGURATION not in java_options:
        made.set(_JAVA_OPTIONS, f"{java_options} -D{_LOG_CONFIGURATION}={_QUIET.as_uri()}".strip())
    return made


def _pump(print_line: Callable[[str], None]) -> IO[bytes]:
    """A file that Spark writes to; its lines go to `print_line` for as long as Spark lives."""
    reading, writing = os.pipe()

    def pump() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.rstrip()
                if text and text != _JAVA_GREETING:
                    print_line(text)

    threading.Thread(target=pump, name="twophase-spark-output", daemon=True).start()
    return os.fdopen(writing, "wb", buffering=0)


def _stop(context: SparkContext) -> None:
    try:
        context.stop()
    except Exception:  # noqa: BLE001 Spark may be dead already; the command ends in any case
        _log.debug("Spark did not stop", exc_info=True)
