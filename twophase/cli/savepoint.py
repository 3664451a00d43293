"""`twophase savepoint`: makes, lists, shows, verifies, finishes, rescales and disposes of
savepoints.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click

from twophase.cli.checkpoint_list import offsets_of
from twophase.cli.display.console import plain_table, print_lines
from twophase.cli.display.output import SparkOutput, print_to_stderr
from twophase.cli.display.streams import expect_printed
from twophase.cli.display.text import count, local_time, on_one_line, size
from twophase.cli.jobfile.job_file import load_job_file
from twophase.cli.options import (
    checkpoint_location_option,
    combined,
    is_verbose,
    job_file_argument,
    verbose_option,
)
from twophase.cli.repair_setup import repair_context
from twophase.cli.spark import Start, spark_session
from twophase.contract.offset_text import offset_text
from twophase.errors import TwoPhaseError
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.format import Savepoint
from twophase.operations.savepoint.format import dispose as dispose_of
from twophase.operations.savepoint.make import (
    OPTION,
    SavepointMaker,
    list_savepoints,
    open_savepoint,
    savepoint_path,
)
from twophase.operations.savepoint.rescale import Rescaler, repartition_with
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.options.job_options import JobOptions
from twophase.options.parsing import parse_duration_s
from twophase.spark.startup.quick_start import is_switched_off
from twophase.spark_versions import REPARTITIONED_STATE
from twophase.state.files.folder_rights import check_owner, owner_named
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage


@click.group()
def savepoint() -> None:
    """Make, list, show, verify, finish, rescale and dispose of savepoints.

    A savepoint is a folder that holds one consistent cut of a job. It needs nothing of the job's
    own folder, may be moved, and is never deleted by the system.

    \b
    Examples:
      twophase savepoint create orders.yaml /savepoints/orders-1
      twophase run orders.yaml --restore /savepoints/orders-1
      twophase savepoint rescale /savepoints/orders-1 --partitions 64
    """


_job_options = combined(verbose_option, checkpoint_location_option, job_file_argument)


def _seconds(_: click.Context, __: click.Parameter, text: str) -> float:
    try:
        return float(cast(float, parse_duration_s(text)))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}.") from None


@savepoint.command()
@_job_options
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    default="5s",
    show_default=True,
    callback=_seconds,
    help="How long to wait for Spark to finish the newest micro-batch.",
)
@click.argument("path", metavar="[PATH]", required=False)
@owner_named()
def create(
    job_file: Path,
    path: str | None,
    wait_s: float,
    checkpoint_location: str | None,
) -> None:
    """Make a savepoint of the newest completed checkpoint in the folder PATH.

    Without PATH it gets a new folder in savepoint.dir.

    Only reads the job's folder, so the job may run or be stopped. A job that runs on gets ahead of
    it: to continue from it exactly, stop the job first.

    A checkpoint is decided shortly before Spark finishes its micro-batch. If the plan keeps state,
    the savepoint has to wait for that.
    """
    job = load_job_file(job_file, {"checkpointLocation": checkpoint_location})
    options = JobOptions.parse(job.options, job_file.name)
    root = ReadOnlyStorage(options.checkpoint_location).root
    check_owner(root)  # the job could not read the savepoint
    clock = SystemClock()
    maker = SavepointMaker(job.name, root, clock)
    path = savepoint_path(job.name, path, options)
    deadline_s = clock.monotonic_s() + wait_s
    maker.make(path, still_waiting=lambda: clock.monotonic_s() < deadline_s)
    _describe(open_savepoint(path))


@savepoint.command("list")
@click.argument("folder", metavar="FOLDER")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@verbose_option
@owner_named()
def list_(folder: str, as_json: bool) -> None:
    """List the savepoints in FOLDER. Exits with the code of the first that is not usable."""
    entries = [_entry(path, found) for path, found in list_savepoints(folder)]
    if as_json:
        click.echo(json.dumps([entry for entry, _ in entries], indent=2))
    else:
        table = plain_table(("path", "job", "checkpoint", "state", "made", "size"))
        for entry, _ in entries:
            made = local_time(entry["created_ms"]) if "created_ms" in entry else "-"
            bytes_ = size(entry["bytes"]) if "bytes" in entry else "-"
            cells = (entry["path"], entry.get("job", "-"), entry.get("checkpoint", "-"))
            row = (*cells, entry["state"], made, bytes_)
            table.add_row(*(on_one_line(str(cell)) for cell in row))
        print_lines([table])
    for _, error in entries:
        if error is not None:
            raise error
    expect_printed()


@savepoint.command()
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every file.")
@verbose_option
@owner_named()
def show(path: str, as_json: bool) -> None:
    """Show what the savepoint PATH holds: offsets, sinks, state, files."""
    found = open_savepoint(path)
    if as_json:
        files = [{"path": file.path, "bytes": file.length} for file in found.manifest.files]
        offsets = [list(line) for line in offsets_of(found.checkpoint())]
        click.echo(json.dumps({**_fields(found), "offsets": offsets, "files": files}, indent=2))
    else:
        _describe(found)
    expect_printed()


@savepoint.command()
@click.argument("path", metavar="PATH")
@verbose_option
@owner_named()
def verify(path: str) -> None:
    """Read all of the savepoint PATH, and compare it with its manifest. Exits with 3 if damaged."""
    found = open_savepoint(path)
    found.verify()
    files = count(len(found.manifest.files), "file")
    click.echo(f"{found.where} is intact: {files}, {size(found.manifest.size)}.")


@savepoint.command()
@_job_options
@click.argument("path", metavar="PATH")
@owner_named()
def finish(job_file: Path, path: str, checkpoint_location: str | None) -> None:
    """Commit the checkpoint of a savepoint whose job was stopped before a sink could commit it.

    It begins like every start: it takes the job over and commits decided checkpoints.
    """
    with repair_context(job_file, checkpoint_location, verbose=is_verbose()) as (job, context):
        found = verified(job.name, path)
        finish_savepoint(context, found, LocalStorage(found.where, OPTION))
    click.echo(f"{found.where} is finished: its checkpoint is committed in every sink.")


@savepoint.command()
@click.argument("path", metavar="PATH")
@click.option(
    "--partitions", type=int, required=True, metavar="N", help="The new number of partitions."
)
@click.option(
    "--output", metavar="NEW", help="The folder of the new savepoint; PATH-N if not given."
)
@verbose_option
@owner_named()
def rescale(path: str, partitions: int, output: str | None) -> None:
    """Write a new savepoint whose keyed state has N partitions.

    A job that is restored from it runs with N shuffle partitions. PATH is only read. The state has
    to be RocksDB's (state.backend).
    """
    REPARTITIONED_STATE.require()
    rescaler = Rescaler(path, partitions, output or f"{path.rstrip('/')}-{partitions}")
    start = Start("twophase savepoint rescale", None, {}, not is_switched_off(), (), is_verbose())
    with spark_session(start, SparkOutput(print_to_stderr)) as spark:
        rescaler.run(repartition_with(spark.session), SystemClock())
    _describe(open_savepoint(str(rescaler.output)))


@savepoint.command()
@click.argument("path", metavar="PATH")
@verbose_option
@owner_named()
def dispose(path: str) -> None:
    """Delete the savepoint PATH, or what one that was cut short has left."""
    where = ReadOnlyStorage(path, OPTION).root
    dispose_of(LocalStorage(where, OPTION), str(where))
    click.echo(f"{where} is deleted.")


def _entry(
    path: str, found: Savepoint | TwoPhaseError
) -> tuple[dict[str, Any], TwoPhaseError | None]:
    if isinstance(found, TwoPhaseError):
        return {"path": path, "state": "not usable", "problem": str(found)}, found
    return _fields(found), None


def _fields(found: Savepoint) -> dict[str, Any]:
    manifest = found.manifest
    return {
        "path": found.where,
        "job": manifest.job,
        "lineage": manifest.lineage,
        "checkpoint": manifest.checkpoint,
        "state": "committed" if found.is_committed else "to be finished",
        "created_ms": manifest.created_ms,
        "bytes": manifest.size,
        **({"rescaled": [asdict(one) for one in manifest.rescaled]} if manifest.rescaled else {}),
    }


def _describe(found: Savepoint) -> None:
    manifest, checkpoint = found.manifest, found.checkpoint()
    state = "committed" if found.is_committed else "decided, and not committed in every sink yet"
    state_bytes = sum(file.length for file in manifest.below("spark/state"))
    files = count(len(manifest.files), "file")
    lines = [
        f"Savepoint {found.where} of job {manifest.job}, {local_time(manifest.created_ms)}",
        f"checkpoint {manifest.checkpoint} of lineage {manifest.lineage}: {state}",
        f"{files}, {size(manifest.size)}, of which Spark's state is {size(state_bytes)}",
        *(
            f"keyed state rescaled to {count(one.partitions, 'partition')}: micro-batch {one.batch}"
            for one in manifest.rescaled
        ),
        *(
            f"{name} continues at {offset_text(entries)}"
            for name, entries in offsets_of(checkpoint)
        ),
        f"sinks: {', '.join(checkpoint.committables) or '-'}",
    ]
    print_lines(lines)
