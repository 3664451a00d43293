"""The triggers that run for each row that is inserted: what they may do is said at the start.

What a trigger does to the row itself, the rows that are read back show (`rows/read_back`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from twophase.errors import PreflightError
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.rows.read_back import ReadBack
from twophase.sinks.mysql.table import Table, Trigger

_QUOTED = "`(?:[^`]|``)*`"
_GRANT = re.compile(
    rf"(GRANT|REVOKE) (.+?) ON (\*|{_QUOTED})\.(\*|{_QUOTED}) (?:TO|FROM) ", re.DOTALL
)
_GRANTED_COLUMNS = re.compile(rf" \((?:{_QUOTED}|[^)`])*\)")
_WILDCARD = re.compile(r"\\(.)|([%_])|(.)", re.DOTALL)
_NOT_TRANSACTIONAL = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' AND LOCATE(TABLE_NAME, %s) > 0"
    " AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)
# Strings end elsewhere if sql_mode takes backslashes as they are; the others are comments that run.
_UNCLEAR = "\\", "/*!", "/*M!"
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | /\*.*?\*/ | \#[^\n]* | --(?=\s|$)[^\n]* | \s+
    | (`(?:[^`]|``)*` | "(?:[^"]|"")*" | [\w$@]+) | (:= | .)""",
    re.DOTALL | re.VERBOSE,
)
_TAKING = "call", "diagnostics"


def may_see_triggers(session: Session, server: Server, schema: str, name: str) -> bool:
    """Return whether the server shows this account the triggers of a table. MariaDB always does."""
    if server.is_mariadb:
        return True
    [(roles,)] = session.rows("SELECT CURRENT_ROLE()")
    using = "" if roles == "NONE" else f" USING {roles}"
    grants = session.rows(f"SHOW GRANTS FOR CURRENT_USER(){using}")
    return has_trigger_right([str(text) for (text,) in grants], schema, name)


def has_trigger_right(grants: Iterable[str], schema: str, name: str) -> bool:
    """Return whether an account has the right TRIGGER on a table.

    Args:
        grants: as SHOW GRANTS has them. A REVOKE is partial: it takes a global right back for a
            schema.
        schema: of the table.
        name: of the table.
    """
    granted, is_revoked = set(), False
    for verb, rights, on_schema, on_table in (
        found.groups() for found in map(_GRANT.match, grants) if found
    ):
        names = {*_GRANTED_COLUMNS.sub("", rights).split(", ")}
        if names.isdisjoint(("TRIGGER", "ALL PRIVILEGES")):
            continue
        if on_table not in ("*", quote(name)):
            continue
        is_there = on_schema in ("*", quote(schema)) or (
            on_table == "*" and _fits(on_schema, schema)
        )
        if is_there and verb == "GRANT":
            granted.add(on_schema == "*")
        is_revoked |= is_there and verb == "REVOKE"
    return False in granted or (True in granted and not is_revoked)


def _fits(pattern: str, schema: str) -> bool:
    """Return whether the quoted schema of a grant, which may have wildcards, is this one."""
    parts = _WILDCARD.finditer(pattern[1:-1].replace("``", "`"))
    wildcards = {"%": ".*", "_": "."}
    regex = "".join(
        wildcards[part[2]] if part[2] else re.escape(part[1] or part[3]) for part in parts
    )
    return re.fullmatch(regex, schema, re.DOTALL) is not None


def check_triggers(table: Table, read_back: ReadBack) -> None:
    """Refuse a trigger that may change rows which cannot be read back.

    Raises:
        PreflightError: there is one.
    """
    filled = [plan.column for plan in read_back.plans]
    changing = [trigger for trigger in table.triggers if may_change(trigger, filled)]
    if changing and not read_back.key:
        grant = f"GRANT TRIGGER ON {table.sql} TO the user of the sink to show what it does, "
        raise PreflightError(
            f"The {changing[0]} may change rows of {table.sql}, and without a unique key that the "
            "rows fill none can be read back to see it.",
            remedy=f"{grant * (changing[0].body is None)}add a key that the rows fill to "
            f"{table.sql}, or do what the trigger does before the sink and drop it.",
        )


def may_change(trigger: Trigger, filled: Collection[str]) -> bool:
    """Return whether a trigger may assign a column that the rows fill; True if that is not sure.

    Args:
        trigger: of the table.
        filled: the columns.
    """
    if trigger.timing != "BEFORE":
        return False
    if trigger.body is None or any(sign in trigger.body for sign in _UNCLEAR):
        return True
    return not _assigned(trigger.body).isdisjoint(name.lower() for name in filled)


def _assigned(body: str) -> set[str]:
    """Return the columns of the row that a statement may assign, in lower case.

    A variable or a parameter that takes a value may be a column. Other mentions read it.
    """
    words = [found[1] or found[2] for found in _TOKEN.finditer(body) if found[1] or found[2]]
    words = ["", *(word.strip('`"').lower() for word in words), "", "", ""]
    assigned, taking, listing = set(), False, False
    for at, word in enumerate(words[:-3]):
        before, (dot, column, after) = words[at - 1], words[at + 1 : at + 4]
        taking = word in _TAKING or (taking and word != ";")
        two_names = before != "into" and before.isidentifier() and word.isidentifier()
        listing = word == "into" or (listing and not two_names and word not in ("=", "(", ";"))
        is_set = after == ":=" or (after == "=" and before in ("set", ","))
        if (word, dot) == ("new", ".") and (is_set or taking or listing):
            assigned.add(column)
    return assigned


def warnings(session: Session, server: Server, table: Table) -> Iterator[str]:
    """Yield what the triggers of a table may do, one text for each."""
    for trigger in table.triggers:
        lasting = _lasting(session.rows(_NOT_TRANSACTIONAL, (trigger.body,)))
        yield (
            f"the {trigger} runs for each row of {table.sql}. A row that it changes is refused. "
            f"What it writes elsewhere is part of the branch, except in tables without "
            f"transactions{lasting}: there it stays when an attempt is declined, and the next "
            "attempt writes it again"
        )
    if not table.triggers and not may_see_triggers(session, server, table.schema, table.name):
        yield (
            f"this account cannot see whether {table.sql} has triggers. GRANT TRIGGER ON "
            f"{table.sql} TO the user of the sink, and they are named here"
        )


def _lasting(found: Sequence[tuple[str, ...]]) -> str:
    named = ", ".join(f"{qualified(schema, name)} ({engine})" for schema, name, engine in found)
    return f" such as {named}" if named else ""
