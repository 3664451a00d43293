"""The file that describes a job: read, checked and turned into values before Spark starts.

    name: orders
    source: {format: twophase-kafka, schema: "id long, amount double", options: {...}}
    sql: select * from source where amount > 10
    sinks:
      facts: {type: mysql, options: {url: "mysql://app@db/shop", table: orders}}
    options: {checkpointLocation: /chk/orders}
    trigger: {processingTime: 10 seconds}

Plain YAML without tags or duplicate keys: reading it runs no code. Every error names the file, the
key, and what to do; values of options are not repeated where they may hold a secret. docs/cli.md
has every key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from twophase.errors import ConfigError
from twophase.ids import check_name
from twophase.options.job_options import JobOptions
from twophase.options.other_keys import with_our_keys
from twophase.options.parsing import Options
from twophase.options.trigger import check_trigger

_MAX_BYTES = 1024 * 1024
_DEFAULT_VIEW = "source"
_SWITCHES = ("availableNow", "once")
_ON_OR_OFF = TypeAdapter(bool)
P = TypeVar("P", bound=Options)


class _File(Options):
    name: str
    spark: Any = None
    source: Any = None
    sources: Any = None
    sql: str | None = Field(default=None, min_length=1)
    sinks: Any
    options: Any
    trigger: Any = None


class SparkSection(Options):
    """Spark's master and configuration.

    Attributes:
        master: as `spark-submit --master`; None leaves it to Spark's own configuration, and to
            local[*] without one.
        conf: Spark's configuration.
        quick_start: whether to use what makes Spark start quickly, and to record it
            for the next start.
    """

    master: str | None = Field(default=None, min_length=1)
    conf: Mapping[str, str] = Field(default_factory=dict)
    quick_start: bool = True


class SourceSection(Options):
    """One streaming source.

    Attributes:
        format: as in `spark.readStream.format`.
        fields: the schema as DDL text, such as "id long, amount double".
        options: the options of the source.
    """

    format: str = Field(min_length=1)
    fields: str | None = Field(default=None, alias="schema", min_length=1)
    options: Mapping[str, str] = Field(default_factory=dict)


class SinkSection(Options):
    """One sink.

    Attributes:
        type: the name of a sink, or `module:Class`.
        options: the arguments of the sink.
        sql: a query over the view `rows` that gives this sink's rows; None gives it all.
    """

    type: str = Field(min_length=1)
    options: Mapping[str, Any] = Field(default_factory=dict)
    sql: str | None = Field(default=None, min_length=1)


@dataclass(frozen=True)
class JobFile:
    """A job as its file describes it.

    Attributes:
        path: the file.
        name: the job's name.
        spark: where and how Spark runs.
        sources: by the name of their view.
        sql: the query over them; None takes the only source as it is.
        sinks: by name.
        options: the job's options, checked, under our keys.
        trigger: the arguments of `StreamWriter.trigger`; if empty, a micro-batch begins as soon
            as the last is done.
    """

    path: Path
    name: str
    spark: SparkSection
    sources: Mapping[str, SourceSection]
    sql: str | None
    sinks: Mapping[str, SinkSection]
    options: Mapping[str, Any] = field(repr=False)
    trigger: Mapping[str, Any]


def load_job_file(
    path: Path, overrides: Mapping[str, Any], *, available_now: bool = False
) -> JobFile:
    """Read and check a job file.

    Args:
        path: the file.
        overrides: options of the job that the command line sets.
        available_now: process the available records, then end, whatever the file's trigger.

    Raises:
        ConfigError: the file cannot be read, or something in it is invalid.
    """
    where = path.name
    top = _parse(_File, _mapping(where, read_yaml(path)), where)
    given = _mapping(f"{where}: options", top.options)
    options = {**_in_file(where, lambda: with_our_keys(given, f"{where}: options")), **overrides}
    checked = _in_file(where, lambda: JobOptions.parse(options, f"{where}: options"))
    trigger = {"availableNow": True} if available_now else _trigger(where, top.trigger)
    if top.trigger is not None and checked.interval_s is not None:
        raise _two_triggers(where)
    return JobFile(
        path=path,
        name=_name(where, "job", top.name),
        spark=_spark(where, top.spark),
        sources=_sources(where, top),
        sql=top.sql,
        sinks=_sinks(where, top.sinks),
        options=options,
        trigger=trigger,
    )


def _two_triggers(where: str) -> ConfigError:
    return ConfigError(
        f"{where}: both trigger and options.checkpoint.interval set when a checkpoint begins.",
        remedy="keep one of the two.",
    )


def _spark(where: str, value: Any) -> SparkSection:
    raw = _mapping(f"{where}: spark", value if value is not None else {})
    return _parse(SparkSection, _with_texts(f"{where}: spark", raw, "conf"), f"{where}: spark")


def _sources(where: str, top: _File) -> Mapping[str, SourceSection]:
    if (top.source is None) == (top.sources is None):
        raise ConfigError(
            f"{where}: give either source or sources, not "
            f"{'neither' if top.source is None else 'both'}.",
            remedy="write `source:` for a single source, or `sources:` with a name for each.",
        )
    if top.source is not None:
        return {_DEFAULT_VIEW: _source(f"{where}: source", top.source)}
    listed = _mapping(f"{where}: sources", top.sources)
    if top.sql is None:
        raise ConfigError(
            f"{where}: sources needs sql, a query that combines {', '.join(listed)}.",
            remedy="add `sql:` with a query over these names.",
        )
    return {
        _view(f"{where}: sources", name): _source(f"{where}: sources.{name}", value)
        for name, value in listed.items()
    }


def _source(where: str, value: Any) -> SourceSection:
    return _parse(SourceSection, _with_texts(where, _mapping(where, value), "options"), where)


def _sinks(where: str, value: Any) -> Mapping[str, SinkSection]:
    listed = _mapping(f"{where}: sinks", value)
    if not listed:
        raise ConfigError(f"{where}: sinks is empty.", remedy="name at least one sink.")
    return {
        _name(where, "sink", name): _sink(f"{where}: sinks.{name}", entry)
        for name, entry in listed.items()
    }


def _sink(where: str, value: Any) -> SinkSection:
    raw = _mapping(where, value)
    options = _mapping(f"{where}.options", raw.get("options", {}))
    return _parse(SinkSection, {**raw, "options": options}, where)


def _trigger(where: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    where = f"{where}: trigger"
    given = _mapping(where, value)
    return check_trigger({key: _switched(key, entry) for key, entry in given.items()}, where)


def _switched(key: str, value: Any) -> Any:
    """Return True for what any option that is on or off takes for on; everything else as it is."""
    if key not in _SWITCHES:
        return value
    try:
        return _ON_OR_OFF.validate_python(value) or value
    except ValidationError:
        return value


# -- pieces ----------------------------------------------------------------------------------------


def _mapping(where: str, value: Any) -> dict[str, Any]:
    """Return `value` if it is a mapping with text keys; the error does not repeat a secret."""
    if not isinstance(value, dict):
        kind = "empty" if value is None else f"a {type(value).__name__}"
        raise ConfigError(
            f"{where} is {kind}, not a mapping.",
            remedy="write KEY: VALUE lines, indented below it.",
        )
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(
                f"{where}: the key {key!r} is a {type(key).__name__}.", remedy=f"quote it: '{key}'."
            )
    return value


def _with_texts(where: str, raw: dict[str, Any], key: str) -> dict[str, Any]:
    """Return `raw` with the options under `key` as text, which is what Spark takes."""
    options = _mapping(f"{where}.{key}", raw.get(key, {}))
    return {
        **raw,
        key: {name: _text(f"{where}.{key}.{name}", value) for name, value in options.items()},
    }


def _text(where: str, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case _:
            kind = "empty" if value is None else f"a {type(value).__name__}"
            raise ConfigError(
                f"{where} is {kind}, not a text or number.",
                remedy="give a single value; quote it if in doubt.",
            )


def _parse(section: type[P], raw: Mapping[str, Any], where: str) -> P:
    return _in_file(where, lambda: section.parse(raw, where))


def _name(where: str, kind: str, name: str) -> str:
    return _in_file(where, lambda: check_name(kind, name), f"{where}: ")


def _view(where: str, name: str) -> str:
    if not name.isidentifier():
        raise ConfigError(
            f"{where}: {name!r} is not a valid view name.",
            remedy="use letters, digits and '_', and begin with a letter or '_'.",
        )
    return name


T = TypeVar("T")


def _in_file(where: str, check: Callable[[], T], prefix: str = "") -> T:
    try:
        return check()
    except ConfigError as error:
        remedy = error.remedy or f"correct {where.partition(':')[0]}; docs/cli.md lists every key."
        raise ConfigError(f"{prefix}{error.what}", remedy=remedy) from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice; PyYAML would silently keep the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """See `Composer.compose_mapping_node`. What `<<` merges in may be overridden."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """Return the content of `path`.

    Raises:
        ConfigError: it cannot be read, or is not such YAML. The text of the file is not repeated:
            it may hold a secret.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"Cannot read {path}: {error.strerror}.", remedy="name a file that exists."
        ) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES:,} bytes.", remedy="name a job file.")
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"{path} is not valid YAML{place}: {problem}.", remedy="correct it there."
        ) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"Cannot parse {path}: {type(error).__name__}.", remedy="simplify it."
        ) from None
