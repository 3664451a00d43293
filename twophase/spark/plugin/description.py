"""The description of a plugin query: the options of `writeStream`, split up and checked.

    name                      the job's name; the target recognises the job by it after a restart
    checkpointLocation        Spark's folder of the query; the job's log lives in it, in `twophase/`
    sink                      the sink's name within the job; by default its type
    checkpoint.num_retained, commit.backoff, commit.backoff_max       as in docs/configuration.md
    every other option        belongs to the sink, except Spark's own, such as `queryName`

Spark passes option names in lower case.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twophase.errors import ConfigError
from twophase.ids import check_name, short_hash
from twophase.options.job_options import JobOptions
from twophase.options.other_keys import as_written, with_our_keys
from twophase.spark.folder import state_backend
from twophase.spark.folder.query_folder import LOG
from twophase.spark.plan.shuffles import Fault
from twophase.state.files.storage import local_path

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOCATION = "checkpointLocation"
_FLINKS_LOCATION = "execution.checkpointing.dir"
COMPARED = "twophase.compared"
"""Set by `start()`, of `checked_start`: `PluginDescription.compared`."""
_OURS = ("name", "sink", _LOCATION.lower(), COMPARED)
_SPARKS = ("queryname",)
_KEPT = ("checkpoint.num_retained", "commit.backoff", "commit.backoff_max")
_ELSEWHERE = {
    "checkpoint.interval": (
        "the query's trigger starts the micro-batches: use trigger(processingTime=...)."
    ),
    "checkpoint.mode": "the plugin form is always exactly once.",
    "state.backend": f"set {state_backend.PROVIDER} in the session.",
    "state.backend.incremental": f"set {state_backend.CHANGELOG} in the session.",
}
_JOB_ONLY = "it needs twophase's own driver: use twophase.write_stream, or leave it out."


@dataclass(frozen=True)
class Environment:
    """Settings known only in the session where the format was registered.

    Attributes:
        parallelism: how many writers may run at once; 0 if that is not known.
        speculation: whether Spark may run a task twice at the same time.
        timezone: the session's time zone.
        fault: a setting with which Spark would not detect that a shuffle has given other rows.
        variables: environment variables that Spark has not given to its Python processes.
    """

    parallelism: int
    speculation: bool
    timezone: str
    fault: Fault | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def enter(self) -> None:
        """Set the variables in this process, which Spark may have used for another query before."""
        os.environ.update(self.variables)


@dataclass(frozen=True)
class PluginDescription:
    """A query that writes to one sink.

    Attributes:
        job: the job's name.
        sink_type: the name of the sink's entry point.
        sink: the sink's name within the job.
        sink_options: arguments of the sink's class; may name secrets, never print them.
        options: the job's options.
        schema: the columns of the rows.
        environment: the session's settings.
        compared: the adopted lineage that `start()` has compared the query's sources with; empty if
            none.
    """

    job: str
    sink_type: str
    sink: str
    sink_options: Mapping[str, Any] = field(repr=False)
    options: JobOptions
    schema: StructType
    environment: Environment
    compared: str = ""

    @property
    def spark_folder(self) -> Path:
        """Spark's own folder of the query."""
        return local_path(self.options.checkpoint_location).parent

    @property
    def fingerprint(self) -> str:
        """A hash that is equal in every process while the query writes the same columns and target.

        It reveals nothing of the options, which hold secrets by name only.
        """
        options = {key: str(value) for key, value in self.sink_options.items()}
        written = [self.job, self.sink_type, self.sink, options, self.schema.jsonValue()]
        return short_hash(json.dumps(written, sort_keys=True), 32)


def describe(
    format_name: str,
    sink_type: str,
    options: Mapping[str, str],
    schema: StructType,
    environment: Environment,
) -> PluginDescription:
    """Split up and check the options of a query.

    Raises:
        ConfigError: an option is missing, or cannot work in this form.
    """
    where = f"format {format_name!r}"
    written = {key.lower(): value for key, value in options.items()}
    _refuse_flinks_folder(where, written)
    given = with_our_keys(written, where)
    _require(where, given)
    _refuse(where, given)
    location = given[_LOCATION.lower()].rstrip("/")
    local_path(location)  # refuses what is on no disk of this machine
    job = {key: given[key] for key in _KEPT if key in given}
    return PluginDescription(
        job=check_name("job", given["name"]),
        sink_type=sink_type,
        sink=check_name("sink", given.get("sink", sink_type)),
        sink_options={key: given[key] for key in given if key not in (*_OURS, *_KEPT, *_SPARKS)},
        options=JobOptions.validated(
            {_LOCATION: f"{location}/{LOG}", **job}, where, as_written(written)
        ),
        schema=schema,
        environment=environment,
        compared=given.get(COMPARED, ""),
    )


def _refuse_flinks_folder(where: str, written: Mapping[str, str]) -> None:
    if _FLINKS_LOCATION in written:
        raise ConfigError(
            f"{where}: {_FLINKS_LOCATION!r} has no effect in the plugin form: Spark needs the "
            "folder too.",
            remedy=f"set it on the query under Spark's name: .option({_LOCATION!r}, FOLDER)",
        )


def _require(where: str, given: Mapping[str, str]) -> None:
    if _LOCATION.lower() not in given:
        raise ConfigError(
            f"{where}: the query needs the option {_LOCATION!r}.",
            remedy=f"set .option({_LOCATION!r}, FOLDER): Spark's setting "
            "spark.sql.streaming.checkpointLocation does not reach the writers.",
        )
    if "name" not in given:
        raise ConfigError(
            f"{where}: the query needs the option 'name', by which the target recognises the job "
            "after a restart.",
            remedy="set .option('name', 'orders'), and never change it.",
        )


def _refuse(where: str, given: Mapping[str, str]) -> None:
    of_jobs = JobOptions.keys()
    if found := sorted(({key.lower() for key in of_jobs} - {*_OURS, *_KEPT}) & given.keys()):
        reasons = " ".join(f"{key}: {_ELSEWHERE.get(key, _JOB_ONLY)}" for key in found)
        raise ConfigError(f"{where}: options without effect in the plugin form: {reasons}")
