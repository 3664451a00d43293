"""`python -m twophase.testing.services up | sql | fetch | versions`: local servers, their cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import click
from pymysql.err import MySQLError
from rich.console import Console
from rich.table import Table

from twophase.errors import TwoPhaseError
from twophase.spark.startup.cache import CACHE_VARIABLE, cache_root
from twophase.spark.startup.worker_python import worker_python
from twophase.spark_versions import DELTA
from twophase.testing.services import up as servers
from twophase.testing.services.delta import fetch_delta
from twophase.testing.services.kafka_program import fetch_kafka, record_kafka_classes
from twophase.testing.services.mariadb import fetch_mariadb
from twophase.testing.services.mysql import fetch_mysql
from twophase.testing.services.pins import (
    DELTA_VERSION,
    KAFKA_VERSION,
    MARIADB_SERIES,
    MYSQL_VERSION,
)
from twophase.testing.services.side_by_side import Task, fetch_side_by_side
from twophase.testing.services.spark_start import record_spark_classes

_FETCHERS: dict[str, Callable[[], object]] = {
    "kafka": fetch_kafka,
    "mysql": fetch_mysql,
    "mariadb": fetch_mariadb,
    "delta": fetch_delta,
    "spark": worker_python,
}
_RECORDERS: dict[str, Callable[[], object]] = {
    "kafka": record_kafka_classes,
    "spark": record_spark_classes,
}
_DELTA, _SPARK = "delta", "spark"
_VERSIONS = (
    ("Kafka", KAFKA_VERSION),
    ("MySQL", MYSQL_VERSION),
    ("MariaDB", MARIADB_SERIES),
    ("Spark", version("pyspark")),
    ("Delta", DELTA_VERSION),
)
_MEGABYTE = 1_000_000


@click.group(help=__doc__)
def main() -> None:
    """Entry point."""


@main.command()
@click.argument("services", nargs=-1, type=click.Choice(servers.NAMES))
def up(services: tuple[str, ...]) -> None:
    """Keep the named SERVICES up (kafka and mysql if none is named) until Ctrl-C or SIGTERM.

    Prints how to reach them as lines for a shell. They have what the quick start of README.md
    needs: the topic orders, the database shop with the table orders. Their data is
    removed when they stop.
    """
    try:
        servers.run(services or ("kafka", "mysql"))
    except TwoPhaseError as error:
        raise click.ClickException(str(error)) from error


@main.command()
@click.argument("statement")
@click.option("--server", type=click.Choice([*servers.SQL]), default="mysql", show_default=True)
def sql(statement: str, server: str) -> None:
    """Run STATEMENT in the database shop of a server that `up` keeps up; print its rows.

    The server is the one that the printed lines have named in this shell.
    """
    try:
        columns, rows = servers.query(server, statement)
    except (TwoPhaseError, MySQLError) as error:
        raise click.ClickException(str(error)) from error
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("NULL" if value is None else str(value) for value in row))
    _console().print(table if columns else "done")


@main.command()
@click.argument("services", nargs=-1, type=click.Choice(sorted(_FETCHERS)))
@click.option(
    "--record/--no-record",
    default=True,
    show_default=True,
    help="Record the classes of Kafka and Spark, for faster starts: it pays after several.",
)
def fetch(services: tuple[str, ...], record: bool) -> None:
    """Fetch the named SERVICES, or all of them, into the cache, side by side; of Spark, what
    makes it start quickly.
    """
    try:
        fetch_side_by_side(_chains(services or _all_services(), record))
    except TwoPhaseError as error:
        raise click.ClickException(str(error)) from error
    _show()


def _all_services() -> list[str]:
    return [name for name in _FETCHERS if name != _DELTA or DELTA.is_here]


def _chains(services: Sequence[str], record: bool) -> list[list[Task]]:
    """Return the tasks of each service; Spark's follow Delta's, whose classes are recorded too."""
    chains = {name: [Task(name, _FETCHERS[name])] for name in services}
    for name in chains.keys() & _RECORDERS.keys() if record else ():
        chains[name].append(Task(name, _RECORDERS[name]))
    if _DELTA in chains and _SPARK in chains:
        chains[_DELTA] += chains.pop(_SPARK)
    return list(chains.values())


@main.command()
def versions() -> None:
    """Show which servers there are in the cache."""
    _show()


def _console() -> Console:
    """Return a console on which values are no markup."""
    return Console(soft_wrap=True, markup=False, emoji=False, highlight=False)


def _show() -> None:
    root = cache_root()
    table = Table("service", "version", "in the cache", box=None, pad_edge=False)
    for name, number in _VERSIONS:
        folders = [path for path in root.glob(f"{name.lower()}-{number}*") if path.is_dir()]
        table.add_row(name, number, f"{_size_mb(folders)} MB" if folders else "not fetched")
    console = _console()
    console.print(f"{root} (set {CACHE_VARIABLE} to move it)")
    console.print(table)


def _size_mb(folders: list[Path]) -> int:
    files = (
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    return sum(path.stat().st_size for path in files) // _MEGABYTE


if __name__ == "__main__":
    main(prog_name="python -m twophase.testing.services")
