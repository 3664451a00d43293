"""What keeps a rewind from deleting rows of the table: rights, indexes, triggers, foreign keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import pymysql

from twophase.sinks.mysql.client.codes import DENIED, LOCK_WAIT_TIMEOUT, code_of
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.server import Server, read_server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.triggers import may_see_triggers

_INDEXES = (
    "SELECT 1 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " AND COLUMN_NAME = %s AND SEQ_IN_INDEX = 1 AND SUB_PART IS NULL AND INDEX_TYPE = 'BTREE'"
)
_TRIGGERS = (
    "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS"
    " WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s AND EVENT_MANIPULATION = 'DELETE'"
)
# KEY_COLUMN_USAGE lacks the tables on which the account has no privilege; these have all.
# Tables and constraints may have slashes in their names: the first one ends the schema.
_AFTER_SLASH = "SUBSTRING({0}, LOCATE('/', {0}) + 1)"
_FOREIGN_KEYS = (
    f"SELECT {{schema}}, {{table}}, {_AFTER_SLASH.format('ID')}, FOR_COL_NAME, REF_COL_NAME"
    " FROM information_schema.{foreign_keys} JOIN information_schema.{foreign_keys}_COLS USING (ID)"
    " WHERE REF_NAME = {mine} ORDER BY ID, POS"
)
_DECODED = (
    "CONVERT(CONVERT(CAST(SUBSTRING_INDEX(FOR_NAME, '/', {part}) AS BINARY) USING filename)"
    " USING utf8mb4)"
)
_ENCODED = "CAST(CONVERT(%s USING filename) AS BINARY)"
_MYSQL_FOREIGN_KEYS = _FOREIGN_KEYS.format(
    schema="SUBSTRING_INDEX(FOR_NAME, '/', 1)",
    table=_AFTER_SLASH.format("FOR_NAME"),
    foreign_keys="INNODB_FOREIGN",
    mine="CONCAT(%s, '/', %s)",
)
# MariaDB has the names of schemas and tables as those of their files: `a-b` is `a@002db`.
_MARIADB_FOREIGN_KEYS = _FOREIGN_KEYS.format(
    schema=_DECODED.format(part=1),
    table=_DECODED.format(part=-1),
    foreign_keys="INNODB_SYS_FOREIGN",
    mine=f"CONCAT({_ENCODED}, '/', {_ENCODED})",
)


@dataclass(frozen=True)
class Obstacle:
    """A reason why rows cannot be taken back.

    Attributes:
        why: half a sentence.
        remedy: what to do about it.
    """

    why: str
    remedy: str


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key that refers to the target.

    Attributes:
        table: the quoted name of the table that has it.
        name: its name.
        condition: joins that table, as `referring`, with the target, as `target`.
    """

    table: str
    name: str
    condition: str


@dataclass(frozen=True)
class RewoundTable:
    """The target, as a rewind sees it. Runs statements only; the caller owns the session.

    Attributes:
        schema: as the server spells it.
        name: as the server spells it.
        column: the column that names each row's checkpoint.
    """

    schema: str
    name: str
    column: str

    @property
    def sql(self) -> str:
        """The quoted name."""
        return qualified(self.schema, self.name)

    def obstacles(self, session: Session) -> Iterator[Obstacle]:
        """Yield every obstacle that does not depend on the rows to be taken back."""
        server = read_server(session)
        # EXPLAIN needs the privileges of the statement that it explains, and changes nothing.
        delete = f"EXPLAIN DELETE FROM {self.sql} WHERE {quote(self.column)} = ''"
        if _is_denied(partial(session.run, delete)):
            yield Obstacle(
                f"the account may not delete from {self.sql}",
                remedy=f"GRANT DELETE ON {self.sql} TO the user of the sink.",
            )
        yield from self._index(session, server)
        yield from self._triggers(session, server)
        if _is_denied(partial(self.foreign_keys, session)):
            yield Obstacle(
                "the account may not see the foreign keys of other tables, which may delete rows "
                "there",
                remedy="GRANT PROCESS ON *.* TO the user of the sink.",
            )

    def _index(self, session: Session, server: Server) -> Iterator[Obstacle]:
        visible = "" if server.is_mariadb else " AND IS_VISIBLE = 'YES'"
        if not session.rows(_INDEXES + visible, (self.schema, self.name, self.column)):
            yield Obstacle(
                f"no index begins with {self.column}, so that each DELETE would read and lock the "
                "whole table",
                remedy=f"ALTER TABLE {self.sql} ADD INDEX ({quote(self.column)}).",
            )

    def _triggers(self, session: Session, server: Server) -> Iterator[Obstacle]:
        found = session.rows(_TRIGGERS, (self.schema, self.name))
        for schema, name in found:
            trigger = qualified(schema, name)
            yield Obstacle(
                f"the trigger {trigger} would run for each row that is removed",
                remedy=f"keep what SHOW CREATE TRIGGER {trigger} prints, DROP TRIGGER {trigger}, "
                "and create it again once the rows have been taken back.",
            )
        if not found and not may_see_triggers(session, server, self.schema, self.name):
            yield Obstacle(
                f"the account may not see the triggers of {self.sql}, which would run for each "
                "row that is removed",
                remedy=f"GRANT TRIGGER ON {self.sql} TO the user of the sink.",
            )

    def foreign_keys(self, session: Session) -> Sequence[ForeignKey]:
        """Return the foreign keys that refer to the target, its own among them.

        Raises:
            pymysql.Error: the account may not see all of them.
        """
        statement = (
            _MARIADB_FOREIGN_KEYS if read_server(session).is_mariadb else _MYSQL_FOREIGN_KEYS
        )
        found = session.rows(statement, (self.schema, self.name))
        return [
            ForeignKey(
                qualified(schema, table),
                name,
                " AND ".join(
                    f"referring.{quote(one)} = target.{quote(other)}" for *_, one, other in columns
                ),
            )
            for (schema, table, name), columns in groupby(found, key=itemgetter(0, 1, 2))
        ]

    def references(
        self, session: Session, keys: Sequence[ForeignKey], values: Sequence[str]
    ) -> Iterator[Obstacle]:
        """Yield each foreign key by which rows refer to the rows of checkpoints.

        Args:
            session: the session.
            keys: as `foreign_keys` returns them.
            values: of the column, one for each checkpoint.
        """
        for key in keys:
            count = partial(self._count, session, key)
            if _is_denied(partial(count, "")):
                yield Obstacle(
                    f"the foreign key {key.name} of {key.table} refers to it, and the account may "
                    "not read that table",
                    remedy=f"GRANT SELECT ON {key.table} TO the user of the sink.",
                )
            elif rows := sum(map(count, values)):
                dropped = f"ALTER TABLE {key.table} DROP FOREIGN KEY {quote(key.name)}"
                deleted = "" if key.table == self.sql else f"delete those rows of {key.table}, or "
                yield Obstacle(
                    f"rows of {key.table} refer to rows that would be removed: {rows}, by the "
                    f"foreign key {key.name}",
                    remedy=f"{deleted}{dropped} and add it again once the job has written the rows "
                    "again; then repeat the restore.",
                )

    def _count(self, session: Session, key: ForeignKey, value: str) -> int:
        [(count,)] = session.rows(
            f"SELECT COUNT(*) FROM {self.sql} target JOIN {key.table} referring"
            f" ON {key.condition} WHERE target.{quote(self.column)} = %s",
            (value,),
        )
        return int(count)


def _is_denied(run: Callable[[], object]) -> bool:
    """Return whether the account lacks a right; False if somebody keeps the table locked, such as
    DDL that waits for a branch of the job.
    """
    try:
        run()
    except pymysql.Error as error:
        if code_of(error) not in DENIED | {LOCK_WAIT_TIMEOUT}:
            raise
        return code_of(error) in DENIED
    return False
