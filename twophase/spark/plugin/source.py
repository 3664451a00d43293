"""The formats `twophase-<sink>`: one Spark data source for each installed sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from pyspark.sql.datasource import DataSource

from twophase.errors import ConfigError
from twophase.spark.plugin.confirmed_start import compared_lineage
from twophase.spark.plugin.description import COMPARED, Environment, PluginDescription, describe
from twophase.spark.plugin.host import PluginHost, open_sink
from twophase.spark.plugin.job import job_of
from twophase.spark.plugin.writer import PluginWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from twophase.contract.source import SourceLeg

PREFIX = "twophase-"
_APPEND = "append"


class SinkDataSource(DataSource):
    """A sink as a format of `writeStream`. `registration.py` makes the class that is registered.

    Spark creates one object to plan each micro-batch, and one more, which it
    pickles, to commit them.
    """

    sink_type: ClassVar[str]
    environment: ClassVar[Environment]

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return f"{PREFIX}{cls.sink_type}"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(dict(options))
        self._planning = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planning": False}

    def streamWriter(self, schema: StructType, overwrite: bool) -> PluginWriter:
        """Plan a micro-batch, or create the writer that commits it.

        Raises:
            TwoPhaseError: the job must not go on; the query fails with the error in its
                exception (`errors.carried`).
        """
        self.environment.enter()
        description = self._described(schema, "complete" if overwrite else _APPEND)
        return PluginWriter(description, job_of(description).plan() if self._planning else None)

    def compare(
        self, schema: StructType, mode: str, legs: Callable[[], Sequence[SourceLeg]]
    ) -> dict[str, str]:
        """Check, before the query starts, that it begins where it was confirmed at an adoption.

        Args:
            schema: the columns of the rows.
            mode: Spark's output mode, in lower case.
            legs: returns the sources of the query.

        Returns:
            Options that tell the query what was compared.

        Raises:
            TwoPhaseError: it does not, or an option is not right.
        """
        lineage = compared_lineage(self._described(schema, mode), legs)
        return {} if lineage is None else {COMPARED: lineage}

    def check(self, schema: StructType, mode: str) -> None:
        """Check what can be checked before the query starts: open the sink, and close it again.

        Args:
            schema: the columns of the rows.
            mode: Spark's output mode, in lower case.

        Raises:
            TwoPhaseError: an option or a column is not right, or the target cannot be used.
        """
        description = self._described(schema, mode)
        context = PluginHost(description).sink_context(description.sink)
        open_sink(description, context).close()

    def _described(self, schema: StructType, mode: str) -> PluginDescription:
        if mode != _APPEND:
            raise ConfigError(
                f"Format {self.name()!r} supports append only: output mode {mode!r} would have "
                "to replace rows of the target.",
                remedy=f"use outputMode({_APPEND!r}).",
            )
        return describe(self.name(), self.sink_type, self.options, schema, self.environment)

    # the signature is Spark's
    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002
        """Refuse a batch write."""
        raise ConfigError(
            f"Format {self.name()!r} supports streaming writes only.",
            remedy="use df.writeStream, or another format for a batch write.",
        )
