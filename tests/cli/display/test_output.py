"""What Spark prints at a start: Ivy's report of the jars is kept back, and
everything else is not.
"""

from __future__ import annotations

import queue
from contextlib import nullcontext
from unittest import mock

import pytest

from twophase.cli.display.output import SparkOutput
from twophase.cli.run import _run_to_its_end
from twophase.cli.signals import StopSignals
from twophase.errors import StopJobError

# Spark 4.2.0 that finds Delta in its Ivy cache; the lines of a first fetch are
# those of Ivy's source.
IVY = """\
:: loading settings :: url = jar:file:/opt/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml
Ivy Default Cache set to: /home/ada/.ivy2.5.2/cache
The jars for the packages stored in: /home/ada/.ivy2.5.2/jars
io.delta#delta-spark_4.2_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-cb91f24d;1.0
\tconfs: [default]
\tfound io.delta#delta-spark_4.2_2.13;4.4.0 in central
downloading https://repo1.maven.org/maven2/io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar ...
\t[SUCCESSFUL ] io.delta#delta-storage;4.4.0!delta-storage.jar (31ms)
:: resolution report :: resolve 305ms :: artifacts dl 5ms
\t:: modules in use:
\tio.delta#delta-spark_4.2_2.13;4.4.0 from central in [default]
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|       conf       | number| search|dwnlded|evicted|| number|dwnlded|
\t---------------------------------------------------------------------
\t|      default     |   2   |   0   |   0   |   0   ||   2   |   0   |
\t---------------------------------------------------------------------
:: retrieving :: org.apache.spark#spark-submit-parent-cb91f24d
\tconfs: [default]
\t0 artifacts copied, 2 already retrieved (0kB/16ms)
"""  # noqa: E501
GREETING = "WARNING: Using incubator modules: jdk.incubator.vector\n"
WARNING = (
    "26/11/23 12:58:42 WARN NativeCodeLoader: Unable to load native-hadoop "
    "library for your platform...\n"
)
END = "the end\n"


class Screen:
    """What was printed."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self.output = SparkOutput(self._lines.put)

    def write(self, text: str) -> list[str]:
        """What is printed of it."""
        with self.output.open() as file:
            file.write((text + END).encode())
        printed: list[str] = []
        while (line := self._lines.get(timeout=30)) != END.strip():
            printed.append(line)
        return printed

    def kept(self) -> list[str]:
        self.output.print_kept()
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]


def test_of_a_start_that_fetches_jars_only_what_is_not_ivys_is_printed() -> None:
    screen = Screen()
    screen.output.fetching = True
    assert screen.write(GREETING + IVY + WARNING) == [WARNING.strip()]


def test_where_spark_does_not_start_ivys_report_is_printed_after_all() -> None:
    screen = Screen()
    screen.output.fetching = True
    assert screen.write(IVY) == []
    assert screen.kept() == [line.rstrip() for line in IVY.splitlines()]
    assert screen.kept() == []


def test_once_spark_is_up_a_line_that_looks_like_ivys_is_printed() -> None:
    assert Screen().write(IVY) == [line.rstrip() for line in IVY.splitlines()]


@pytest.mark.parametrize("error", [None, StopJobError("no")], ids=repr)
def test_what_spark_says_of_its_end_is_kept_back_unless_the_job_has_failed(
    error: Exception | None,
) -> None:
    """A short job ends while Spark still starts workers for it, and Spark calls that an error."""
    output, job = (
        SparkOutput(print),
        mock.Mock(await_termination=mock.Mock(side_effect=error), query=None),
    )
    with nullcontext() if error is None else pytest.raises(StopJobError):
        _run_to_its_end(job, StopSignals(print), output)
    assert output.muted is (error is None)
