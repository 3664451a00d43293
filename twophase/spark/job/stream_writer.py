"""`twophase.write_stream`: describe a job in the style of Spark's API, then start it.

job = (twophase.write_stream(orders, name="orders")
       .sink("facts", MySqlSink(url="mysql://app@db/shop", table="orders"))
       .option("checkpointLocation", "/chk/orders")
       .trigger(processingTime="10 seconds")
       .start())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from twophase.contract.listener import (
    CheckpointedFunction,
    CheckpointListener,
    check_function,
    check_listener,
)
from twophase.contract.sink import ArrowSink, BatchSink, Sink
from twophase.errors import ConfigError
from twophase.events import Observer
from twophase.ids import check_name
from twophase.internals.pyspark_version import check_pyspark
from twophase.internals.sink_entry_points import load_sink, make_sink
from twophase.options.job_options import JobOptions
from twophase.options.trigger import check_trigger
from twophase.spark.batch.batch import JobSink
from twophase.spark.job.job import Job
from twophase.spark.job.spark_host import JobDescription

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_stream(frame: DataFrame, *, name: str) -> StreamWriter:
    """Describe a job that writes a streaming DataFrame to sinks, exactly once.

    Args:
        frame: any streaming DataFrame, stateful or not.
        name: the job's name. The sinks recognise the job by it after a restart, so keep it.

    Raises:
        ConfigError: the DataFrame is not streaming, or belongs to another process's Spark, or
            the name is invalid.
        PreflightError: this is another pyspark than the required one.
    """
    check_pyspark()
    if not isinstance(frame, ClassicDataFrame):
        raise ConfigError(
            f"Job {name!r}: the DataFrame belongs to a Spark Connect session, but write_stream "
            "has to run in the process of Spark's driver.",
            remedy="use the plugin form: twophase.register(spark), then "
            "df.writeStream.format('twophase-mysql') (docs/connect.md); or create the session with "
            "spark.master instead of spark.remote.",
        )
    if not frame.isStreaming:
        raise ConfigError(
            f"Job {name!r}: the DataFrame is not streaming.",
            remedy="load it with spark.readStream.",
        )
    return StreamWriter(frame, check_name("job", name))


class StreamWriter:
    """A job being described. Every method but `start` returns the writer itself."""

    def __init__(self, frame: DataFrame, name: str) -> None:
        self._frame = frame
        self._name = name
        self._sinks: dict[str, JobSink] = {}
        self._options: dict[str, Any] = {}
        self._trigger: dict[str, Any] = {}
        self._listeners: list[CheckpointListener] = []
        self._functions: dict[str, CheckpointedFunction] = {}
        self._observers: list[Observer] = []

    def sink(
        self,
        name: str,
        sink: Sink | str,
        transform: Callable[[DataFrame], DataFrame] | None = None,
        **options: Any,
    ) -> Self:
        """Add a sink. All sinks of a job commit each checkpoint together.

        Args:
            name: the sink's name within the job. The target recognises its pieces by it after a
                restart, so keep it.
            sink: the sink, not yet opened; or its type, such as "mysql": the name of an entry point
                in `twophase.sinks`.
            transform: applied to the rows for this sink only, such as a filter.
            options: the options of a sink that is given by its type, such as `table="orders"`.

        Raises:
            ConfigError: the name is taken or invalid, `sink` is not a sink, its type or options are
                invalid, or `transform` cannot be called.
        """
        if transform is not None:
            self._check_callable(f"transform of sink {name!r}", transform)
        sink = _resolved(f"Job {self._name!r}, sink {name!r}", sink, options)
        if check_name("sink", name) in self._sinks:
            twice = f"Job {self._name!r} has two sinks named {name!r}."
            raise ConfigError(twice, remedy="give each its own name.")
        if not isinstance(sink, ArrowSink | BatchSink):
            raise ConfigError(
                f"Sink {name!r} is a {type(sink).__name__}, not an ArrowSink or a BatchSink.",
                remedy="pass a sink, or the type of an installed one, such as 'mysql'.",
            )
        self._sinks[name] = JobSink(sink, transform)
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set an option of the job, checked at `start`. The keys are in docs/configuration.md."""
        self._options[key] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options."""
        self._options.update(options)
        return self

    def trigger(self, **trigger: Any) -> Self:
        """Set when a micro-batch, and its checkpoint, begins; as `DataStreamWriter.trigger`.

        Args:
            trigger: exactly one of these. `processingTime`: the time from one trigger to the next,
                such as "10 seconds". `availableNow=True`: process the available records, then end.
                `once=True`: the same in one micro-batch, which Spark has deprecated.

        Raises:
            ConfigError: it is none of these, or its value is not allowed; `continuous` and
                `realTime` cannot call a job's sinks.
        """
        self._trigger = check_trigger(trigger, f"Job {self._name!r}: trigger")
        return self

    def listener(self, listener: CheckpointListener) -> Self:
        """Add a listener to completed, aborted and subsumed checkpoints.

        Raises:
            ConfigError: it has no method of a `CheckpointListener`, or one that cannot be called.
        """
        check_listener(f"Job {self._name!r}, listener", listener)
        self._listeners.append(listener)
        return self

    def function(self, name: str, function: CheckpointedFunction) -> Self:
        """Add a driver-side function whose state is kept in every checkpoint under `name`.

        Raises:
            ConfigError: the name is taken or invalid, or the function lacks a method.
        """
        if check_name("function", name) in self._functions:
            raise ConfigError(
                f"Job {self._name!r} has two functions named {name!r}.",
                remedy="give each its own name.",
            )
        check_function(f"Job {self._name!r}, function {name!r}", function)
        self._functions[name] = function
        return self

    def observer(self, observer: Observer) -> Self:
        """Add an observer of events: logs, progress, metrics.

        Raises:
            ConfigError: it cannot be called.
        """
        self._check_callable("observer", observer)
        self._observers.append(observer)
        return self

    def _check_callable(self, what: str, given: object) -> None:
        if not callable(given) or isinstance(given, type):
            kind = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
            raise ConfigError(
                f"Job {self._name!r}, {what}: {kind} is no function.",
                remedy="pass a function, or an object that can be called.",
            )

    def start(self) -> Job:
        """Check everything, recover, and start the query.

        Raises:
            ConfigError: an option or a sink is not right; nothing was written.
            PreflightError: a target, or Spark as configured, cannot keep the protocol's promises;
                nothing was written.
            StopJobError: the job must not go on, see the error.
        """
        job = self.build()
        job.start()
        return job

    def build(self) -> Job:
        """Check the options; return the job unstarted, so that it can be stopped while it starts.

        Raises:
            ConfigError: an option is not right.
        """
        if not self._sinks:
            raise ConfigError(
                f"Job {self._name!r} has no sink.", remedy="add one with .sink(name, sink)."
            )
        options = JobOptions.parse(self._options, f"job {self._name!r}")
        trigger = dict(self._trigger)
        if not trigger and options.interval_s is not None:
            trigger = {"processingTime": f"{options.interval_s * 1000:.0f} milliseconds"}
        return Job(
            JobDescription(
                name=self._name,
                frame=self._frame,
                sinks=self._sinks,
                options=options,
                trigger=trigger,
                listeners=tuple(self._listeners),
                functions=self._functions,
                observers=tuple(self._observers),
            )
        )


def _resolved(where: str, sink: Sink | str, options: Mapping[str, Any]) -> Sink:
    """Return a sink as it was given, or one of the given type with these options.

    Raises:
        ConfigError: there is no such type, or options are given with an instance.
    """
    if isinstance(sink, str):
        made: Sink = make_sink(where, load_sink(where, sink), options)
        return made
    if options:
        raise ConfigError(
            f"{where}: cannot combine a {type(sink).__name__} instance with options "
            f"({', '.join(sorted(options))}).",
            remedy=f"give the options to {type(sink).__name__}(...) itself.",
        )
    return sink
