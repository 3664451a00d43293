"""`python -m demo`: orders from Kafka into MySQL, Delta and Hive, exactly once, while
drivers are killed.

1. start Kafka and MySQL, write the orders into Kafka
2. run the job in a separate process; kill it and start it again, until everything is read
3. read Kafka and the three tables back, independently, and compare
4. if all is well, begin to record Spark's classes behind it, for faster starts later
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from demo import orders
from demo.figures import add_up, what_is_wrong
from demo.kills import PLAN, Kill
from demo.screen import Screen
from demo.supervisor import DriverFailedError, Supervisor
from demo.target import TABLE, Target
from twophase.errors import TwoPhaseError
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.services.service import Service
from twophase.testing.services.spark_start import record_spark_classes_behind

_CHECKPOINTS_PER_KILL = 5


@click.command(help=__doc__)
@click.option(
    "--records",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1_000),
    help="Orders to write.",
)
@click.option(
    "--kills",
    default=len(PLAN),
    show_default=True,
    type=click.IntRange(1, len(PLAN)),
    help="Drivers to kill.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep servers, logs and the job's folder until Ctrl-C, to look around.",
)
def main(records: int, kills: int, keep: bool) -> None:
    """Entry point."""
    screen = Screen()
    # so that drivers and servers end with us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    demo = _Demo(screen, records, PLAN[:kills], keep)
    try:
        good = demo.run()
    except (TwoPhaseError, DriverFailedError) as error:
        screen.console.print(f"[bold red]{type(error).__name__}[/bold red]: {error}", markup=True)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit):
        demo.forget()
        raise
    sys.exit(0 if good else 1)


class _Demo:
    def __init__(self, screen: Screen, records: int, plan: Sequence[Kill], keep: bool) -> None:
        self._screen = screen
        self._records = records
        self._plan = plan
        self._keep = keep
        self._folder = Path(tempfile.mkdtemp(prefix="twophase-demo-"))

    def run(self) -> bool:
        """Return whether everything arrived once, in spite of enough kills."""
        screen = self._screen
        screen.console.print(
            f"{self._records:,} orders from Kafka into MySQL, Delta and Hive, in one checkpoint, "
            f"exactly once; drivers killed on the way: {len(self._plan)}.\n"
        )
        with ExitStack() as stack:
            kafka = KafkaService()
            mysql = MySqlService(local_infile=True)
            for name, service in (("Kafka", kafka), ("MySQL", mysql)):
                self._start(stack, name, service)
            target = Target(mysql, self._folder)
            self._produce(kafka)
            supervisor = self._supervise(kafka, mysql, target)
            screen.line(
                "reading all back, to compare partition, offset and payload of "
                "every record with each table"
            )
            screen.more("No table has a unique key: each would hold a duplicate, not hide it.")
            verdicts = target.compare(kafka.bootstrap_servers, orders.TOPIC)
            waiting, figures = target.waiting(), add_up(supervisor.lives)
            screen.results(verdicts, waiting, figures)
            wrong = what_is_wrong(verdicts, self._records, waiting, figures.kills, len(self._plan))
            self._conclude(wrong, figures.kills)
            if self._keep:
                self._wait(kafka, mysql, target)
        if not wrong:
            self.forget()
            self._prepare_the_next()
        return not wrong

    def forget(self) -> None:
        """Remove logs and the job's folder."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, stack: ExitStack, name: str, service: Service) -> None:
        began_s = time.monotonic()
        stack.enter_context(service)
        self._screen.line(f"{name} is up, after {time.monotonic() - began_s:.1f} s")

    def _produce(self, kafka: KafkaService) -> None:
        orders.create_topic(kafka.bootstrap_servers)
        began_s = time.monotonic()
        with self._screen.bar("orders written", self._records) as bar:
            for done in orders.produce(kafka.bootstrap_servers, self._records):
                bar(done)
        took_s = time.monotonic() - began_s
        self._screen.line(
            f"{self._records:,} orders are in Kafka, in {orders.PARTITIONS} partitions, "
            f"after {took_s:.1f} s"
        )

    def _supervise(self, kafka: KafkaService, mysql: MySqlService, target: Target) -> Supervisor:
        environment = {
            "DEMO_KAFKA": kafka.bootstrap_servers,
            "DEMO_MYSQL": target.url,
            "DEMO_MYSQL_PASSWORD": mysql.password,
            "DEMO_LAKE": str(target.tables.delta),
            "DEMO_FOLDER": str(self._folder / "job"),
            "DEMO_RECORDS_PER_CHECKPOINT": str(self._records_per_checkpoint()),
        }
        with self._screen.bar("orders decided", self._records) as bar:
            supervisor = Supervisor(
                self._folder, environment, self._plan, target, self._screen, bar
            )
            supervisor.run()
        return supervisor

    def _records_per_checkpoint(self) -> int:
        return max(self._records // (_CHECKPOINTS_PER_KILL * len(self._plan)), 1)

    def _conclude(self, wrong: str, kills: int) -> None:
        console = self._screen.console
        console.print()
        if wrong:
            console.print(
                f"[bold red]Failed.[/bold red] {wrong} Logs and the job's folder: {self._folder}"
            )
        else:
            after = "1 kill" if kills == 1 else f"{kills} kills"
            console.print(
                "[bold green]Every order is in each table exactly once, "
                f"after {after}.[/bold green]"
            )

    def _prepare_the_next(self) -> None:
        """Record what makes later starts faster; beside the drivers it would take their time."""
        if record_spark_classes_behind():
            self._screen.console.print(
                "[dim]Spark's classes are being recorded in the background, for faster starts "
                "from the next demo or test on.[/dim]"
            )

    def _wait(self, kafka: KafkaService, mysql: MySqlService, target: Target) -> None:
        """Until Ctrl-C."""
        console = self._screen.console
        console.print(
            f"\nKafka: {kafka.bootstrap_servers}   MySQL: {mysql.host}:{mysql.port}, table {TABLE}"
        )
        console.print(f"User {mysql.user}, password {mysql.password}")
        console.print(f"Delta: {target.tables.delta}   Hive: {target.tables.hive}")
        console.print(f"Logs and the job's folder: {self._folder}   Ctrl-C ends the servers.")
        # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main(prog_name="python -m demo")
