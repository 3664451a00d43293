"""Everything durable is written and read by its type alone, and each change of a field is refused.

A change is one field too few, one too many, or a value of another type, in any object at any depth.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.files.test_codec import VALUES
from twophase.contract.committable import Committable
from twophase.errors import CorruptRecordError, NewerFormatError
from twophase.internals import json_values
from twophase.operations.savepoint.manifest import Manifest as SavepointManifest
from twophase.sinks.common.staging.manifest import Manifest as StagedManifest
from twophase.sinks.common.staging.rewound import Places
from twophase.sinks.delta import records as delta
from twophase.sinks.hive.pending import _Waiting
from twophase.sinks.iceberg import proofs as iceberg
from twophase.sinks.iceberg.records import Manifest as IcebergManifest
from twophase.sinks.iceberg.records import SortedManifest as SortedIcebergManifest
from twophase.sinks.kafka import records as kafka
from twophase.sinks.paimon import records as paimon
from twophase.sources.kafka.offsets import SourceOffset
from twophase.sources.kafka.range_digest import RangeDigest
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.function_state import FunctionState, StateFile
from twophase.state.files import codec
from twophase.state.journal.history import _KINDS, record_from_json
from twophase.state.journal.log import LogEntry

TYPES = [
    *(LogEntry, CompletedCheckpoint, SavepointManifest, RangeDigest),
    *(Committable, StagedManifest, Places, delta.Intent, delta.Manifest, _Waiting),
    *(IcebergManifest, SortedIcebergManifest, iceberg.LineageProof, iceberg.FenceRecord),
    *(kafka.Mark, kafka.Fence),
    *(paimon.Manifest, paimon.SnapshotPieces, paimon.CommitRecord),
]
TEXT = st.text(max_size=4)
PLAIN: Mapping[Any, st.SearchStrategy[Any]] = {str: TEXT, int: st.integers(), bool: st.booleans()}
SOME: st.SearchStrategy[Any] = st.sampled_from([1.5, True, 1, 0, "1", "x", [], {}, None])
"""Among them something that any type refuses: 1.5."""


def is_class_of_fields(form: Any) -> bool:
    return is_dataclass(form)


@cache
def values_of(form: Any) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    match get_origin(form), get_args(form):
        case None, _ if form is Any:
            return VALUES
        case None, _ if form is StateFile:
            return st.builds(StateFile, st.from_regex("[0-9]{1,6}", fullmatch=True), st.integers())
        case None, _ if form is FunctionState:
            head = {name: values_of(one) for name, one in get_type_hints(form).items()}
            data, file = {"data": st.binary(max_size=5)}, {"file": values_of(StateFile)}
            inline = st.builds(form, **head | data | {"file": st.none()})
            return inline | st.builds(form, **head | file | {"data": st.none()})
        case None, _ if is_class_of_fields(form):
            hints = get_type_hints(form)
            return st.builds(form, **{one.name: values_of(hints[one.name]) for one in fields(form)})
        case None, _ if form in PLAIN:
            return PLAIN[form]
        case origin, [item, *_] if origin in (tuple, Sequence):
            return st.lists(values_of(item), max_size=2).map(tuple)
        case origin, [_, item] if origin is Mapping:
            return st.dictionaries(TEXT, values_of(item), max_size=2)
        case origin, kinds if origin in (Union, UnionType):
            return st.one_of([values_of(kind) for kind in kinds])
        case _:
            return st.from_type(form)


def objects_in(form: Any, value: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The type and the JSON object of each dataclass in the JSON values of a type."""
    match get_origin(form), get_args(form):
        case None, _ if is_class_of_fields(form):
            yield form, value
            hints = get_type_hints(form)
            for one in fields(form):
                yield from objects_in(hints[one.name], value[one.name])
        case origin, [item, *_] if origin in (tuple, Sequence):
            for one in value:
                yield from objects_in(item, one)
        case origin, [_, item] if origin is Mapping:
            for one in value.values():
                yield from objects_in(item, one)
        case origin, kinds if origin in (Union, UnionType) and value is not None:
            known = [kind for kind in kinds if is_class_of_fields(kind)]
            for kind in known:
                if len(known) == 1 or kind.action == value["action"]:
                    yield from objects_in(kind, value)


def changed(data: st.DataObject, form: Any, value: Any) -> Any:
    """The JSON values of a type with one field of one object changed, in place."""
    kind, found = data.draw(st.sampled_from([*objects_in(form, value)]))
    hints = get_type_hints(kind)
    name = data.draw(st.sampled_from([one.name for one in fields(kind)]))
    match data.draw(st.sampled_from(["removed", "added", "retyped"])):
        case "retyped" if hints[name] is not Any:
            other = data.draw(SOME.filter(lambda one: not accepts(hints[name], one)))
            found[name] = other
        case "removed":
            del found[name]
        case _:
            found[data.draw(TEXT.filter(lambda one: one not in found))] = data.draw(VALUES)
    return value


def accepts(form: Any, value: Any) -> bool:
    """Whether a plain value could be one of a type."""
    match get_origin(form), get_args(form):
        case None, _ if form in (bool, int, str):
            return bool(type(value) is form)
        case None, _:
            return form is Any
        case origin, _ if origin in (tuple, Sequence):
            return bool(value == [])
        case origin, _ if origin is Mapping:
            return bool(value == {})
        case origin, [known] if origin is Literal:
            return (type(value), value) == (type(known), known)
        case _, kinds:
            return value is None or any(accepts(kind, value) for kind in kinds)


def stored(value: Any) -> Any:
    return json.loads(json_values.canonical_json(value))


@pytest.mark.parametrize("form", TYPES, ids=lambda form: form.__name__)
@given(data=st.data())
def test_what_was_written_is_read(form: Any, data: st.DataObject) -> None:
    value = data.draw(values_of(form))
    assert codec.decode("KIND", codec.encode("KIND", value), "here", form) == value


@pytest.mark.parametrize("form", TYPES, ids=lambda form: form.__name__)
@given(data=st.data())
def test_each_change_of_a_field_is_refused_by_the_name_of_the_record(
    form: Any, data: st.DataObject
) -> None:
    value = changed(data, form, stored(data.draw(values_of(form))))
    with pytest.raises(NewerFormatError, match=r"^The durable file here \(KIND\) is intact but"):
        codec.decode("KIND", codec.encode("KIND", value), "here", form)


@pytest.mark.parametrize("kind", _KINDS)
@given(data=st.data())
def test_each_record_of_the_log_is_read_and_each_change_of_it_refused(
    kind: str, data: st.DataObject
) -> None:
    record = data.draw(values_of(_KINDS[kind]))
    assert record.kind == kind
    assert record_from_json(kind, stored(record), "log/1") == record
    value = changed(data, _KINDS[kind], stored(record))
    with pytest.raises(NewerFormatError, match=rf"^The log record log/1 \({kind}\) is intact but"):
        record_from_json(kind, value, "log/1")


@given(data=st.data())
def test_each_change_of_an_offset_of_kafka_is_refused(data: st.DataObject) -> None:
    value = stored(SourceOffset("kafka", (), None))
    with pytest.raises((CorruptRecordError, NewerFormatError)):
        SourceOffset.parse(changed(data, SourceOffset, value))
