"""Where the sources of an adopted job begin, if nothing tells where its newest checkpoint ended."""

from __future__ import annotations

from twophase.cli.display.text import count
from twophase.cli.jobfile.job_file import JobFile
from twophase.cli.repair_display import lineages_text
from twophase.contract.source_entry_points import skips_existing, source_of
from twophase.errors import ConfigError
from twophase.operations.repair.adoption_plan import AdoptionPlan
from twophase.spark.plan.operator_states import begins_by_options
from twophase.state.journal.entries import StartingOffsets

_BEGAN = (
    "set startingOffsets of every source to where the job began, and run the command again with "
    "--from-starting-offsets."
)


def starting_offsets(job: JobFile, plan: AdoptionPlan, *, allowed: bool) -> list[str]:
    """Return lines about where the sources begin by their own options."""
    given = {
        name: source_of(source.format).starting_offsets(source.options)
        for name, source in job.sources.items()
    }
    waiting = [piece for sink in plan.sinks.values() for piece in sink.aborts]
    is_first = plan.is_empty and not waiting and not plan.continues
    if is_first and not skips_existing(job.legs):
        default = "the default of the source"
        lines = [f"- {name}: {offsets or default}" for name, offsets in given.items()]
        return ["the startingOffsets of the sources, as a new job does:", *lines]
    if allowed and None not in given.values():
        return [
            (
                "the startingOffsets of the sources. Records before them that are not in the "
                "targets are lost;"
            ),
            "records after them that are in the targets will be duplicated:",
            *(f"- {name}: {offsets}" for name, offsets in given.items()),
        ]
    raise _not_known(job, plan, len(waiting))


def confirmed(job: JobFile) -> list[StartingOffsets]:
    """Return where the sources begin by their own options, for the log."""
    return [begins_by_options(leg) for leg in job.legs]


def _not_known(job: JobFile, plan: AdoptionPlan, waiting: int) -> ConfigError:
    """Return the error for sources whose beginning is not known, and was not given by the operator.

    Args:
        job: the job file.
        plan: a plan without end offsets.
        waiting: how many pieces the next start aborts.
    """
    where = job.path.name
    if plan.is_empty:
        return _without_rows(where, waiting)
    if not plan.lineage:
        return _several_lineages(where, plan)
    return ConfigError(
        f"{where}: the targets have rows of this job, and nothing in its folder tells "
        "where the newest of them were read from. Nothing was written.",
        remedy="find out up to which offsets the targets have the records, "
        "such as from their columns, set startingOffsets of every source to that, and run the "
        "command again with --from-starting-offsets.",
    )


def _without_rows(where: str, waiting: int) -> ConfigError:
    if not waiting:
        return ConfigError(
            f"{where}: the targets have no rows of this job, and nothing tells up to where "
            "a driver has read before. Records since then may be skipped, such as with "
            "startingOffsets latest. Nothing was written.",
            remedy=_BEGAN,
        )
    return ConfigError(
        f"{where}: the targets have no rows of this job, but {count(waiting, 'piece')} that "
        f"{'was' if waiting == 1 else 'were'} "
        "pre-committed. Nothing tells where they were read from; the next start aborts them, "
        "and their records have to be read again. Nothing was written.",
        remedy=_BEGAN,
    )


def _several_lineages(where: str, plan: AdoptionPlan) -> ConfigError:
    return ConfigError(
        f"{where}: the targets have rows of several lineages of this job, and nothing "
        f"tells which is the newest: {lineages_text(plan)}. Nothing was written.",
        remedy="make sure that checkpointLocation names the newest folder of the job. Then "
        "find out up to which offsets the targets have the records, such as from their "
        "columns, or from what Spark noted of that checkpoint, if that is of the lineage that "
        "you know to be the newest (spark/<lineage>/offsets; in the plugin form `offsets` "
        "beside `metadata`, which names the lineage); set startingOffsets of every source to "
        "that, and run the command again with --from-starting-offsets.",
    )
