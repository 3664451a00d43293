"""The column that names each row's checkpoint (`checkpoint_column`), so that it can be taken back.

A value is `<lineage>/<checkpoint, 12 digits>/<hash of job and sink>`: the rows of a lineage after a
checkpoint are one range of an index. The column has a binary collation, so that this order is the
server's.

    twophase_marked    per job, sink and lineage: the newest checkpoint whose rows may lack a value.
                       Per job and sink, under the lineage '': the generation of the last driver
                       that fills the column

A driver without the option raises the fence past that generation: the next one with it takes all
that is committed by then for rows without a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twophase.errors import ConfigError
from twophase.ids import Attempt, TransactionId, short_hash
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.table import Table

_DIGITS = 12
VALUE_LENGTH = 36 + 1 + _DIGITS + 1 + 8
_MISSING = "there is no such column"
_LATEST = ""
"""The lineage under which the generation is stored."""


def value_of(transaction: TransactionId) -> str:
    """Return the value of the column in the rows of a transaction."""
    owner = short_hash(f"{transaction.job}/{transaction.sink}", 8)
    return f"{transaction.lineage}/{transaction.checkpoint:0{_DIGITS}d}/{owner}"


def checkpoint_in(value: str) -> tuple[str, int, str]:
    """Return lineage, checkpoint and owner of a value, as `value_of` made it.

    Raises:
        ValueError: it is not such a value.
    """
    lineage, number, owner = value.split("/")
    return lineage, int(number), owner


def range_after(lineage: str, last: int) -> tuple[str, str]:
    """Return the bounds, both exclusive, of a lineage's values after its checkpoint `last`."""
    return f"{lineage}/{last + 1:0{_DIGITS}d}/", f"{lineage}0"


def owner_of(job: str, sink: str) -> str:
    """Return the part of a value that names the sink."""
    return short_hash(f"{job}/{sink}", 8)


def check_column(table: Table, name: str) -> str:
    """Return the column's name as the server spells it.

    Raises:
        ConfigError: there is no such column, or it cannot hold the values in their order.
    """
    found = [one for one in table.columns if one.name.lower() == name.lower()]
    if not found:
        raise _unfit(table, name, _MISSING)
    column = found[0]
    if column.data_type != "varchar" or (column.length or 0) < VALUE_LENGTH:
        raise _unfit(table, name, f"it is {column.column_type}")
    if column.generated:
        raise _unfit(table, name, "the server computes it")
    if not str(column.collation).endswith("_bin"):
        raise _unfit(table, name, f"its collation is {column.collation}")
    return column.name


def _unfit(table: Table, name: str, why: str) -> ConfigError:
    fits = f"{quote(name)} VARCHAR({VALUE_LENGTH}) CHARACTER SET ascii COLLATE ascii_bin"
    if why == _MISSING:
        remedy = f"ALTER TABLE {table.sql} ADD COLUMN {fits}, ADD INDEX ({quote(name)}) adds it."
    else:
        remedy = (
            f"if it is for nothing else, ALTER TABLE {table.sql} MODIFY COLUMN {fits}; otherwise "
            "name another column in checkpoint_column."
        )
    return ConfigError(
        f"checkpoint_column {name!r} of {table.sql}: {why}. It has to be a VARCHAR of at least "
        f"{VALUE_LENGTH} characters with a binary collation.",
        remedy=remedy,
    )


@dataclass(frozen=True)
class MarkedRows:
    """The metadata table that records which rows name their checkpoint. Runs statements only.

    Attributes:
        metadata: the other metadata tables.
    """

    metadata: MetadataTables

    def take_over(self, session: Session, job: str, sink: str, attempt: Attempt) -> None:
        """Record that all rows of `attempt` and later ones name their checkpoint.

        In the transaction that raises the fence, before it is raised.
        """
        fence = self.metadata.read_fence(session, job, sink)
        if not self._is_of(session, job, sink, fence):
            for lineage, newest in self.metadata.committed(session, job, sink).items():
                self._write(session, job, sink, lineage, newest)
        self._write(session, job, sink, _LATEST, attempt.generation)

    def unmarked(self, session: Session, job: str, sink: str) -> Mapping[str, int]:
        """Return, for each lineage, the newest checkpoint whose rows may lack their value."""
        fence = self.metadata.read_fence(session, job, sink)
        if not self._exists(session) or not self._is_of(session, job, sink, fence):
            return self.metadata.committed(session, job, sink)
        found = session.rows(
            f"SELECT lineage, number FROM {self._table} WHERE job = %s AND sink = %s "
            "AND lineage <> %s",
            (job, sink, _LATEST),
        )
        return {str(lineage): int(number) for lineage, number in found}

    def _exists(self, session: Session) -> bool:
        return bool(
            session.rows(
                "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
                "AND LOWER(TABLE_NAME) = 'twophase_marked'",
                (self.metadata.schema,),
            )
        )

    def _is_of(self, session: Session, job: str, sink: str, fence: Attempt | None) -> bool:
        """Return whether the driver that has raised the fence fills the column."""
        found = session.rows(
            f"SELECT number FROM {self._table} WHERE job = %s AND sink = %s AND lineage = %s",
            (job, sink, _LATEST),
        )
        return fence is None or (bool(found) and int(found[0][0]) == fence.generation)

    def _write(self, session: Session, job: str, sink: str, lineage: str, number: int) -> None:
        session.run(
            f"INSERT INTO {self._table} (job, sink, lineage, number) VALUES (%s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE number = VALUES(number)",
            (job, sink, lineage, number),
        )

    @property
    def _table(self) -> str:
        return qualified(self.metadata.schema, "twophase_marked")
