"""The metadata table that records the identity of each sink's target.

twophase_target     per job and sink: the table's name and creation time. Of no job and sink: the
                    schema that this table was made in (`MetadataTables.find`)
"""

from __future__ import annotations

from dataclasses import dataclass

from twophase.sinks.mysql.client.identifiers import qualified
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.identity import ACCEPTED, TableIdentity


@dataclass(frozen=True)
class TargetTable:
    """The metadata table that records each sink's target.

    Attributes:
        schema: the schema of the metadata tables.
    """

    schema: str

    def read(self, session: Session, job: str, sink: str) -> TableIdentity | None:
        """Return the table that the proofs of a job and sink belong to, if recorded."""
        found = session.rows(
            f"SELECT table_schema_name, table_name, created FROM {self._table} WHERE job = %s "
            "AND sink = %s",
            (job, sink),
        )
        return TableIdentity(*map(str, found[0])) if found else None

    def others(
        self, session: Session, job: str, sink: str, table: TableIdentity
    ) -> list[tuple[str, str]]:
        """Return the other jobs and sinks whose proofs belong to a table."""
        found = session.rows(
            f"SELECT job, sink FROM {self._table} WHERE table_schema_name = %s "
            "AND table_name = %s AND NOT (job = %s AND sink = %s)",
            (table.schema, table.name, job, sink),
        )
        return [(str(job), str(sink)) for job, sink in found]

    def accept_sql(self, job: str, sink: str) -> str:
        """Return the SQL that says that the recorded table is the right one as it is now."""
        return (
            f"UPDATE {self._table} SET created = '{ACCEPTED}' "
            f"WHERE job = '{job}' AND sink = '{sink}'"
        )

    def write(self, session: Session, job: str, sink: str, table: TableIdentity) -> None:
        """Record the table that the proofs belong to from now on, and where they are."""
        session.run(
            f"INSERT INTO {self._table} (job, sink, table_schema_name, table_name, created) "
            "VALUES ('', '', %s, '', ''), (%s, %s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE table_schema_name = "
            "VALUES(table_schema_name), table_name = VALUES(table_name),"
            " created = VALUES(created)",
            (self.schema, job, sink, table.schema, table.name, table.created),
        )

    @property
    def _table(self) -> str:
        return qualified(self.schema, "twophase_target")
