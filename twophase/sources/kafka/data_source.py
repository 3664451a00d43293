"""The data source `twophase-kafka`, as Spark registers it."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from twophase.errors import ConfigError
from twophase.sources.kafka import raw_format
from twophase.sources.kafka.offsets import FORMAT, WHERE
from twophase.sources.kafka.options import KafkaOptions, ValueFormat
from twophase.sources.kafka.reader import KafkaStreamReader


class KafkaDataSource(DataSource):
    """Reads Kafka topics as a stream: `readStream.format("twophase-kafka")`.

    Options: `KafkaOptions`.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of value.format=raw; called if the user gives no schema."""
        options = KafkaOptions.parse(self.options)
        if options.value_format is ValueFormat.JSON:
            raise ConfigError(
                f"{WHERE}: value.format=json needs a schema.",
                remedy="call .schema(...) before .load().",
            )
        return raw_format.ddl(options.columns)

    def streamReader(self, schema: StructType) -> KafkaStreamReader:
        """Return the reader of one query; opens nothing."""
        return KafkaStreamReader(KafkaOptions.parse(self.options), schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 Spark's signature
        """Refuse a batch read: the source is a stream."""
        raise ConfigError(
            f"{WHERE}: spark.read is not supported.",
            remedy="use spark.readStream, with .trigger(availableNow=True) to stop at the end.",
        )
