"""`.sink("facts", "mysql", url=...)`: a sink by the name of its entry point, with its
options beside it.
"""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import DataFrame

from harness.own_sinks import own_sinks
from twophase.errors import ConfigError
from twophase.sinks.file import FileSink
from twophase.sinks.mysql import MySqlSink
from twophase.spark.job.stream_writer import StreamWriter


@pytest.fixture
def writer() -> StreamWriter:
    """A description of a job asks nothing of its DataFrame before `start`."""
    return StreamWriter(cast(DataFrame, None), "orders")


def test_a_sink_is_made_of_its_type_and_its_options(writer: StreamWriter) -> None:
    assert writer.sink("lake", "file", path="/lake/orders", format="json") is writer
    [made] = writer._sinks.values()
    assert isinstance(made.sink, FileSink)
    assert made.sink._options.format == "json"


def test_a_mysql_sink_is_made_of_its_type_and_its_options(writer: StreamWriter) -> None:
    writer.sink(
        "facts", "mysql", url="mysql://app@db/shop", table="orders", password_env="SHOP_PASSWORD"
    )
    [made] = writer._sinks.values()
    assert isinstance(made.sink, MySqlSink)
    assert (made.sink._options.table, made.sink._options.password_env) == (
        "orders",
        "SHOP_PASSWORD",
    )


def test_an_unknown_type_is_refused_with_the_known_ones(writer: StreamWriter) -> None:
    with pytest.raises(
        ConfigError, match="sink 'facts': unknown sink type 'mysqll'; did you mean 'mysql'"
    ) as caught:
        writer.sink("facts", "mysqll")
    assert ", ".join(own_sinks()) in str(caught.value)


def test_an_option_that_the_sink_does_not_have_is_named(writer: StreamWriter) -> None:
    with pytest.raises(ConfigError, match=r"sink 'lake'.*paht"):
        writer.sink("lake", "file", paht="/lake/orders")


def test_options_beside_a_sink_that_has_its_own_are_refused(writer: StreamWriter) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot combine a FileSink instance with options \(format\)"
    ) as caught:
        writer.sink("lake", FileSink(path="/lake/orders"), format="json")
    assert caught.value.remedy == "give the options to FileSink(...) itself."
    writer.sink("lake", FileSink(path="/lake/orders", format="json"))
    [made] = writer._sinks.values()
    assert isinstance(made.sink, FileSink)
    assert made.sink._options.format == "json"
