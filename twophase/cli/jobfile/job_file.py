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

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from twophase.cli.jobfile.mistakes import Mistakes
from twophase.contract.source import SourceLeg
from twophase.errors import ConfigError
from twophase.ids import check_name
from twophase.options.job_options import JobOptions
from twophase.options.other_keys import our_key, with_our_keys
from twophase.options.parsing import Duration, Options
from twophase.options.trigger import check_trigger, in_yaml

_MAX_BYTES = 1024 * 1024
_DEFAULT_VIEW = "source"
_UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)
_SWITCHES = ("availableNow", "once")
_TEXT, *_REWRITTEN = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "timestamp", "float", "bool")
)
_INT, _TIMESTAMP, _, _BOOL = _REWRITTEN
_DECIMAL = re.compile("0|-?[1-9][0-9]*")
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


class WatermarkSection(Options):
    """How late records may come, as `DataFrame.withWatermark` has it.

    Attributes:
        column: the column with the time of the event.
        delay: in seconds.
    """

    column: str = Field(min_length=1)
    delay: Duration


class SourceSection(Options):
    """One streaming source.

    Attributes:
        format: as in `spark.readStream.format`.
        fields: the schema as DDL text, such as "id long, amount double".
        options: the options of the source.
        watermark: of its rows; None for none.
    """

    format: str = Field(min_length=1)
    fields: str | None = Field(default=None, alias="schema", min_length=1)
    options: Mapping[str, str] = Field(default_factory=dict)
    watermark: WatermarkSection | None = None


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

    @property
    def legs(self) -> list[SourceLeg]:
        """The sources as they are asked, in the file's order."""
        return [SourceLeg(one.format, one.options) for one in self.sources.values()]


def load_job_file(
    path: Path, overrides: Mapping[str, Any], *, available_now: bool = False
) -> JobFile:
    """Read and check a job file, apart from what its sources and sinks make of their options.

    Args:
        path: the file.
        overrides: options of the job that the command line sets; None for one that it does not.
        available_now: process the available records, then end, whatever the file's trigger.

    Raises:
        ConfigError: the file cannot be read, or something in it is invalid.
        ExceptionGroup: several things in it are.
    """
    mistakes = Mistakes(path.name)
    job = read_job_file(path, overrides, mistakes, available_now=available_now)
    mistakes.check()
    return job


def read_job_file(
    path: Path, overrides: Mapping[str, Any], mistakes: Mistakes, *, available_now: bool = False
) -> JobFile:
    """Read a job file; what is wrong in it is kept as a mistake, and left out.

    Args:
        path: the file.
        overrides: as for `load_job_file`.
        mistakes: of this file.
        available_now: as for `load_job_file`.

    Raises:
        ConfigError: it cannot be read, or is no mapping.
    """
    where = path.name
    overrides = {key: value for key, value in overrides.items() if value is not None}
    raw = _mapping(where, read_yaml(path))
    mistakes.note(lambda: _File.parse(raw, where))
    trigger = mistakes.note(lambda: _trigger(where, raw.get("trigger"))) or {}
    name = raw["name"] if isinstance(raw.get("name"), str) else ""
    if name:
        mistakes.note(lambda: check_name("job", name), where)
    return JobFile(
        path=path,
        name=name,
        spark=mistakes.note(lambda: _spark(where, raw.get("spark"))) or SparkSection(),
        sources=_sources(mistakes, raw),
        sql=raw.get("sql"),
        sinks=_sinks(mistakes, raw),
        options=_options(mistakes, raw, overrides),
        trigger={"availableNow": True} if available_now else trigger,
    )


def _options(
    mistakes: Mistakes, raw: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of the job under our keys."""
    if "options" not in raw:
        return {**overrides}
    where = f"{mistakes.where}: options"
    given = mistakes.note(lambda: with_our_keys(_mapping(where, raw["options"]), where))
    if given is None:
        return {**overrides}
    options = {**given, **overrides}
    written = {name: one for name, one in raw["options"].items() if our_key(name) not in overrides}
    checked = mistakes.note(lambda: JobOptions.parse({**written, **overrides}, where))
    if raw.get("trigger") is not None and checked is not None and checked.interval_s is not None:
        mistakes.add(
            "both trigger and options.checkpoint.interval set when a checkpoint begins.",
            remedy="keep one of the two.",
        )
    return options


def _spark(where: str, value: Any) -> SparkSection:
    where = f"{where}: spark"
    raw = _mapping(where, value if value is not None else {})
    return SparkSection.parse(_with_texts(where, raw, "conf"), where)


def _sources(mistakes: Mistakes, raw: Mapping[str, Any]) -> Mapping[str, SourceSection]:
    where, one, several = mistakes.where, raw.get("source"), raw.get("sources")
    if (one is None) == (several is None):
        mistakes.add(
            f"give either source or sources, not {'neither' if one is None else 'both'}.",
            remedy="write `source:` for a single source, or `sources:` with a name for each.",
        )
    if several is None:
        listed = {} if one is None else {_DEFAULT_VIEW: one}
        places = {_DEFAULT_VIEW: f"{where}: source"}
    else:
        listed = mistakes.note(lambda: _mapping(f"{where}: sources", several)) or {}
        places = {name: f"{where}: sources.{name}" for name in listed}
        for name in listed:
            mistakes.note(partial(_check_view, f"{where}: sources", name))
        for one, other in combinations(listed, 2):
            if one.lower() == other.lower():
                mistakes.add(
                    f"sources {one!r} and {other!r} differ only in case: Spark has one view of "
                    "both names.",
                    remedy="give one of them another name, in sql too.",
                )
        if one is None and listed and raw.get("sql") is None:
            mistakes.add(
                f"sources needs sql, a query that combines {', '.join(listed)}.",
                remedy="add `sql:` with a query over these names.",
            )
    return _sections(mistakes, places, listed, _source)


def _source(where: str, value: Any) -> SourceSection:
    raw = _with_texts(where, _mapping(where, value), "options")
    if raw.get("watermark") is not None:
        within = f"{where}.watermark"
        raw["watermark"] = WatermarkSection.parse(_mapping(within, raw["watermark"]), within)
    return SourceSection.parse(raw, where)


def _sinks(mistakes: Mistakes, raw: Mapping[str, Any]) -> Mapping[str, SinkSection]:
    where = mistakes.where
    if "sinks" not in raw:
        return {}
    listed = mistakes.note(lambda: _mapping(f"{where}: sinks", raw["sinks"]))
    if listed == {}:
        mistakes.add("sinks is empty.", remedy="name at least one sink.")
    for name in listed or {}:
        mistakes.note(partial(check_name, "sink", name), where)
    places = {name: f"{where}: sinks.{name}" for name in listed or {}}
    return _sections(mistakes, places, listed or {}, _sink)


def _sink(where: str, value: Any) -> SinkSection:
    raw = _mapping(where, value)
    options = _mapping(f"{where}.options", raw.get("options", {}))
    return SinkSection.parse({**raw, "options": options}, where)


def _sections(
    mistakes: Mistakes,
    places: Mapping[str, str],
    listed: Mapping[str, Any],
    parse: Callable[[str, Any], P],
) -> Mapping[str, P]:
    """Return the sections without a mistake, by name."""
    found = {
        name: mistakes.note(partial(parse, places[name], value)) for name, value in listed.items()
    }
    return {name: section for name, section in found.items() if section is not None}


def _trigger(where: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    where = f"{where}: trigger"
    given = _mapping(where, value)
    switched = {key: _switched(key, entry) for key, entry in given.items()}
    return check_trigger(switched, where, in_yaml)


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
        raise ConfigError(
            f"{where} is {_kind(value)}, not a mapping.",
            remedy="write KEY: VALUE lines, indented below it.",
        )
    for key in value:
        if not isinstance(key, str):
            word = value.written(key) if isinstance(value, _Read) else str(key)
            raise ConfigError(
                f"{where}: the key {word} is {_kind(key)}.", remedy=f"quote it: '{word}'."
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
    if isinstance(value, str):
        return value
    raise ConfigError(
        f"{where} is {_kind(value)}, not a text or number.",
        remedy="give a single value; quote it if in doubt.",
    )


def _kind(value: Any) -> str:
    name = "dict" if isinstance(value, dict) else type(value).__name__
    return "empty" if value is None else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _check_view(where: str, name: str) -> None:
    if not name.isidentifier():
        raise ConfigError(
            f"{where}: {name!r} is not a valid view name.",
            remedy="use letters, digits and '_', and begin with a letter or '_'.",
        )


class _Read(dict[Any, Any]):
    """A mapping that has been read.

    Attributes:
        words: its keys that are no texts, each with what was written for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words: list[tuple[Any, str]] = []

    def written(self, key: Any) -> str:
        """Return what was written for a key: `no` for False, `1.10` for 1.1."""
        words = (word for one, word in self.words if type(one) is type(key) and one == key)
        return next(words, str(key))


class _Loader(yaml.SafeLoader):
    """Keeps what the user wrote where PyYAML would silently take it for something else.

    A key that is given twice is refused; PyYAML would keep the last one. The options of sources and
    Spark's configuration are texts, letter for letter: `007`, `1_000`, `1.10`, `off`, `2026-01-01`.
    Only in Spark's configuration are `on`, `off`, `yes` and `no` what Spark has for them.
    Elsewhere so are dates, and numbers but plain decimal ones: `010` is not 8, `1:30` not 90.
    """

    def get_single_node(self) -> yaml.Node | None:
        """See `Composer.get_single_node`."""
        root = super().get_single_node()
        if not isinstance(root, yaml.MappingNode):
            return root
        return self._changed(
            root,
            {
                "source": self._with_text_options,
                "sources": lambda node: self._changed(node, {}, self._with_text_options),
                "spark": lambda node: self._changed(node, {"conf": self._as_conf}),
            },
        )

    def _with_text_options(self, node: yaml.Node) -> yaml.Node:
        return self._changed(node, {"options": self._as_texts})

    def _as_conf(self, node: yaml.Node) -> yaml.Node:
        return self._changed(node, {}, lambda value: _as_text(_as_switch(value)))

    def _as_texts(self, node: yaml.Node) -> yaml.Node:
        return self._changed(node, {}, _as_text)

    def _changed(
        self,
        node: yaml.Node,
        changes: Mapping[str, Callable[[yaml.Node], yaml.Node]],
        others: Callable[[yaml.Node], yaml.Node] = lambda node: node,
    ) -> yaml.Node:
        """Return a copy of a mapping with its values changed; an alias may use it elsewhere."""
        if not isinstance(node, yaml.MappingNode):
            return node
        copy = yaml.MappingNode(node.tag, [*node.value], node.start_mark, node.end_mark)
        self.flatten_mapping(copy)
        copy.value = [(key, changes.get(_name(key), others)(value)) for key, value in copy.value]
        return copy

    def construct_yaml_map(self, node: yaml.MappingNode) -> Generator[dict[Any, Any], None, None]:
        """See `SafeConstructor.construct_yaml_map`."""
        read = _Read()
        yield read
        read.update(self.construct_mapping(node))
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _TEXT:
                read.words.append((self.construct_object(key), key.value))

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """See `Resolver.resolve`."""
        tag = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        is_other = tag == _TIMESTAMP or (tag == _INT and not _DECIMAL.fullmatch(value))
        return _TEXT if is_other else tag

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


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_yaml_map)


def _as_switch(node: yaml.Node) -> yaml.Node:
    """Return `true` or `false` for any of YAML's words for them: Spark knows no others."""
    if not isinstance(node, yaml.ScalarNode) or node.tag != _BOOL:
        return node
    word = "true" if yaml.SafeLoader.bool_values[node.value.lower()] else "false"
    return yaml.ScalarNode(_TEXT, word, node.start_mark, node.end_mark, node.style)


def _as_text(node: yaml.Node) -> yaml.Node:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _REWRITTEN:
        return node
    return yaml.ScalarNode(_TEXT, node.value, node.start_mark, node.end_mark, node.style)


def _name(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else ""


def _unreadable(error: yaml.YAMLError, data: bytes) -> str:
    """Return why the characters of a file are none of YAML's."""
    if not isinstance(error, yaml.reader.ReaderError):
        return str(error)
    place = ""
    if not data.startswith(_UTF_16):
        line = data.decode(errors="replace")[: error.position].count("\n") + 1
        place = f", in line {line}"
    if error.encoding == "unicode":
        return f"it has the character U+{error.character:04X}, which YAML does not allow{place}"
    return f"it is not UTF-8 text{place}"


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
        problem = getattr(error, "problem", None) or _unreadable(error, data)
        raise ConfigError(
            f"{path} is not valid YAML{place}: {problem}.", remedy="correct it there."
        ) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"Cannot parse {path}: {type(error).__name__}.", remedy="simplify it."
        ) from None
