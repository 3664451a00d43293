"""Which rows are columns of their source, read off plans like those of Spark."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from harness.folder_sink import FolderSink, OpenFolderSink
from twophase.sources.kafka.range_reader import KafkaRangeReader
from twophase.spark.batch.chaining import Chaining
from twophase.spark.plan.logical_plan import Projection, projection_of
from twophase.state.checkpoints.checkpoint import FrozenOffsets

_ids = itertools.count()
ID, NAME, AT = LongType(), StringType(), TimestampType()


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


class Scala:
    """A sequence."""

    def __init__(self, found: Sequence[Any]) -> None:
        self._found = found

    def size(self) -> int:
        return len(self._found)

    def isEmpty(self) -> bool:
        return not self._found

    def apply(self, index: int) -> Any:
        return self._found[index]


class Column:
    """An expression with a name and an id of its own."""

    def __init__(self, name: str, of: Column | None = None, kind: str = "Alias") -> None:
        self._name, self._of = name, of
        self._kind = kind if of else "AttributeReference"
        self._id = f"ExprId({next(_ids)},jvm)"

    def name(self) -> str:
        return self._name

    def exprId(self) -> str:
        return self._id

    def nodeName(self) -> str:
        return self._kind

    def child(self) -> Any:
        """What an expression is of: a reference, if that is a column of the node below."""
        if self._kind != "Alias" or self._of is None or self._of.nodeName() == "Add":
            return self._of
        return SimpleNamespace(nodeName=lambda: "AttributeReference", exprId=self._of.exprId)


class Node:
    """A node of a plan, and a DataFrame of it."""

    def __init__(self, kind: str, columns: Sequence[Column], *children: Node) -> None:
        self._kind, self.columns_, self._children = kind, columns, children
        query = SimpleNamespace(analyzed=lambda: self)
        self._jdf = SimpleNamespace(queryExecution=lambda: query)
        self.sparkSession = SimpleNamespace(conf={"spark.sql.session.timeZone": "Europe/Rome"})

    def nodeName(self) -> str:
        return self._kind

    def output(self) -> Scala:
        return Scala(self.columns_)

    def projectList(self) -> Scala:
        return Scala(self.columns_)

    def child(self) -> Node:
        return self._children[0]

    def children(self) -> Scala:
        return Scala(self._children)

    @property
    def columns(self) -> list[str]:
        return [one.name() for one in self.columns_]

    def select(self, **columns: str) -> Node:
        """The columns under other names."""
        by_name = {one.name(): one for one in self.columns_}
        made = [
            by_name[old] if old == new else Column(new, by_name[old])
            for new, old in columns.items()
        ]
        return Node("Project", made, self)


class Relation(Node):
    """The source of a stream, or a micro-batch of it."""

    def __init__(self, kind: str, name: str = "twophase-kafka") -> None:
        self.type = struct(id=ID, name=NAME, at=AT)
        super().__init__(kind, [Column(one.name) for one in self.type])
        self._name = name

    def schema(self) -> Any:
        return SimpleNamespace(json=self.type.json)

    def sourceName(self) -> str:
        return self._name

    def extraOptions(self) -> Any:
        options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "value.format": "json"}
        return SimpleNamespace(asCaseSensitiveMap=lambda: options)

    def rdd(self) -> Any:
        return SimpleNamespace(getNumPartitions=lambda: 2)


def projected(frame: Any) -> Projection | str:
    return projection_of(frame)


@pytest.fixture
def stream() -> Any:
    return Relation("StreamingRelationV2")


def test_columns_are_found_through_projections(stream: Any) -> None:
    found = projected(stream)
    assert isinstance(found, Projection)
    assert (found.leaf, found.columns) == (stream, (0, 1, 2))
    rows = stream.select(when="at", id="id")
    rows = Node("View", rows.columns_, Node("SubqueryAlias", rows.columns_, rows))
    rows = rows.select(number="id", at="when", again="id")
    found = projected(rows)
    assert isinstance(found, Projection)
    assert (found.leaf, found.columns) == (stream, (0, 2, 0))


def test_a_computed_column_is_named_if_it_is_taken(stream: Any) -> None:
    sum_of = Column("sum", Column("x", stream.columns_[0], "Add"))
    rows = Node("Project", [*stream.columns_, sum_of], stream)
    assert projected(rows) == "column 'sum' is computed"
    assert projected(rows.select(total="sum")) == "column 'total' is computed"
    assert projected(rows.select(name="name")) == Projection(stream, (1,))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("Filter", "its rows are filtered"),
        ("EventTimeWatermark", "it has a watermark"),
        ("Sample", "its plan has Sample"),
    ],
)
def test_everything_else_is_more_than_columns(stream: Any, kind: str, why: str) -> None:
    rows = Node(kind, stream.columns_, stream)
    assert projected(rows) == projected(rows.select(id="id")) == why


def test_columns_of_another_relation_are_not_taken_for_those_of_the_source(stream: Any) -> None:
    others = Relation("LocalRelation").columns_
    strange = Node("SubqueryAlias", others, stream)
    assert projected(strange) == "its columns are not those of StreamingRelationV2"
    strange = Node("View", others, stream.select(id="id"))
    assert projected(strange) == "its columns are not those of Project"


def chaining(frame: Any, **rows: Any) -> Chaining:
    return Chaining(frame, {name: (FolderSink("/x"), one) for name, one in rows.items()})


def test_a_job_says_what_chains_and_why_the_rest_does_not(stream: Any) -> None:
    found = chaining(
        stream,
        facts=stream.select(number="id"),
        twice=Node("Project", [Column("a", stream.columns_[0])] * 2, stream),
        some=Node("Filter", stream.columns_, stream),
        files=stream,
    )
    assert found.chained == ("facts", "files")
    assert found.unchained == {
        "twice": "two columns are named 'a'",
        "some": "its rows are filtered",
    }
    assert [found.beside(name) for name in ("facts", "files", "some")] == [1, 1, 0]
    assert found.source is not None
    assert isinstance(found.source.reader, KafkaRangeReader)
    other: Any = Relation("StreamingRelationV2", "rate")
    assert chaining(other, a=other).unchained == {"a": "only Spark reads the source rate"}


PENDING: Any = SimpleNamespace(
    offsets=FrozenOffsets((None,), ("-",)),
    missing=lambda: ["facts", "lake"],
    transaction=lambda name: name,
)


def micro_batch(**columns: DataType) -> Any:
    """A micro-batch of two partitions, as Spark passes it."""
    batch: Any = Node("LogicalRDD", [Column(name) for name in columns])
    batch.rdd = lambda: SimpleNamespace(getNumPartitions=lambda: 2, id=lambda: 7)
    batch.schema = struct(**columns)
    return batch


@pytest.fixture
def two_ranges(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    """A source that two tasks read."""
    source = chaining(stream).source
    assert source is not None
    monkeypatch.setattr(type(source.source), "ranges", lambda *_: ["one", "two"])


@pytest.mark.usefixtures("two_ranges")
def test_the_columns_of_a_micro_batch_lead_to_those_of_the_source(stream: Any) -> None:
    frame = stream.select(at="at", number="id", name="name")
    made = chaining(frame, facts=frame, lake=frame, strange=frame)
    batch = micro_batch(at=AT, number=ID, name=NAME)
    other: Any = Node("LogicalRDD", [Column(name) for name in frame.columns])
    rows = batch.select(n="number", when="at")
    rows.schema, other.schema = struct(n=ID, when=AT), struct(id=ID)
    sink = OpenFolderSink("/x", "job", "facts")
    given: Any = {"facts": (sink, rows), "lake": (sink, batch), "strange": (sink, other)}
    chain = made.chain(batch, PENDING, given, again=False)
    assert chain is not None
    assert [(link.sink, link.columns) for link in chain.links] == [
        ("facts", (0, 2)),
        ("lake", (2, 0, 1)),
    ]
    assert chain.links[0].schema == pa.schema(
        [("n", pa.int64()), ("when", pa.timestamp("us", "Europe/Rome"))]
    )


@pytest.mark.usefixtures("two_ranges")
def test_the_plan_of_a_micro_batch_that_a_sink_takes_as_it_is_is_not_walked(stream: Any) -> None:
    frame = stream.select(at="at", number="id", name="name")
    made = chaining(frame, facts=frame, lake=frame)
    batch = micro_batch(at=AT, number=ID, name=NAME)
    walked = list[str]()
    batch.output = lambda: walked.append("output")
    sink = OpenFolderSink("/x", "job", "facts")
    given: Any = dict.fromkeys(("facts", "lake"), (sink, batch))
    chain = made.chain(batch, PENDING, given, again=False)
    assert chain is not None
    assert [(link.sink, link.columns) for link in chain.links] == [
        ("facts", (2, 0, 1)),
        ("lake", (2, 0, 1)),
    ]
    assert walked == []
