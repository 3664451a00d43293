"""`python -m benchmarks` lists the benchmarks; `python -m benchmarks NAME` runs one, `all`
runs each in turn.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from benchmarks import (
    commit_ahead,
    commit_behind,
    file_commit,
    iceberg_commit,
    kafka_commit,
    kafka_read,
    kafka_to_delta,
    kafka_to_hive,
    kafka_to_iceberg,
    kafka_to_kafka,
    kafka_to_mysql,
    latency,
    load_data_limit,
    paimon_commit,
    parquet_encoder,
    plugin_form,
    protocol_cost,
    recovery,
    several_sinks,
    start,
    visibility,
    worker_memory,
)
from benchmarks.report import record_in

_COMMANDS = (
    kafka_to_mysql.command,
    load_data_limit.command,
    latency.command,
    kafka_read.command,
    kafka_to_delta.command,
    plugin_form.command,
    kafka_to_hive.command,
    kafka_to_iceberg.command,
    kafka_to_kafka.command,
    start.command,
    several_sinks.command,
    commit_behind.command,
    commit_ahead.command,
    visibility.command,
    protocol_cost.command,
    file_commit.command,
    parquet_encoder.command,
    kafka_commit.command,
    iceberg_commit.command,
    paimon_commit.command,
    recovery.command,
    worker_memory.command,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--record",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for what is measured; docs/figures for the documentation.",
)
def main(record: Path | None) -> None:
    """Benchmarks of twophase. Each starts its own servers and prints ratios measured in one run."""
    if record is not None:
        record_in(record)


@main.command("all")
@click.pass_context
def run_all(context: click.Context) -> None:
    """All of them, one after the other, with their defaults; but for Paimon's where pypaimon is
    not installed.
    """
    for command in _COMMANDS:
        if command is paimon_commit.command and find_spec("pypaimon") is None:
            click.echo("paimon_commit: left out, pypaimon is not installed")
            continue
        context.invoke(command)


for _command in _COMMANDS:
    main.add_command(_command)

if __name__ == "__main__":
    main()
