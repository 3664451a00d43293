"""A copy of the metadata tables on one server: `mysqldump shop | mysql staging`."""

from __future__ import annotations

import re

import pytest

from integration.mysql.sink_harness import TASK, MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import PreflightError
from twophase.ids import Subtask
from twophase.testing.harness import FIRST

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(2)]


def copy_of(harness: MySqlHarness) -> MySqlHarness:
    """All tables with their rows, in another schema; branches are not copied."""
    copy = MySqlHarness(harness.server)
    for table in harness.contents():
        original = f"`{harness.database}`.`{table}`"
        copy.sql(f"DROP TABLE IF EXISTS `{table}`")
        copy.sql(f"CREATE TABLE `{table}` LIKE {original}")
        copy.sql(f"INSERT INTO `{table}` SELECT * FROM {original}")
    return copy


def refusal(copy: MySqlHarness, *, with_rows: bool = True) -> PreflightError:
    context = copy.context() if with_rows else copy.context(schema=None)
    with pytest.raises(PreflightError) as caught:
        copy.new_sink().open(context)
    return caught.value


def run(copy: MySqlHarness, statements: str) -> None:
    for statement in filter(None, map(str.strip, statements.split(";"))):
        copy.sql(statement)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("with_rows", [True, False])
def test_is_refused_before_it_ends_a_session_or_a_branch_of_the_original(
    sql_server_in_proof: Server, *, committed: bool, with_rows: bool
) -> None:
    original = MySqlHarness(sql_server_in_proof)
    sink = original.opened()
    if committed:
        assert commit(sink, original.write(sink, original.rows([1]))) == [Committed()]
    copy = copy_of(original)
    before = copy.contents()
    prepared = original.write(sink, original.rows([2]), checkpoint=1)
    writing = original.begun(sink, [3], Subtask(1, 0))
    assert (
        f"in {copy.database!r} were made in {original.database!r}"
        in refusal(copy, with_rows=with_rows).what
    )
    assert copy.contents() == before
    pieces = [prepared, writing.pre_commit()]
    assert commit(sink, *filter(None, pieces)) == [Committed(), Committed()]


def test_with_an_id_of_its_own_it_and_the_original_leave_each_other_alone(
    sql_server_in_proof: Server,
) -> None:
    original = MySqlHarness(sql_server_in_proof)
    sink = original.opened()
    copy = copy_of(original)
    prepared = original.write(sink, original.rows([2]))
    writing = original.begun(sink, [3], Subtask(1, 0))
    [way] = re.findall("an id of their own: (.*;) If they were moved", refusal(copy).remedy)
    run(copy, way)
    other = copy.opened()
    assert other.in_doubt() == []
    assert commit(other, copy.write(other, copy.rows([4]))) == [Committed()]
    assert [piece.subtask for piece in sink.in_doubt()] == [TASK]
    pieces = [prepared, writing.pre_commit()]
    assert commit(sink, *filter(None, pieces)) == [Committed(), Committed()]
    assert (original.ids(), copy.ids()) == ([2, 3], [4])
    copy.opened().close()


def test_that_was_moved_keeps_its_id(sql_server_in_proof: Server) -> None:
    original = MySqlHarness(sql_server_in_proof)
    sink = original.opened()
    known = original.sql("SELECT id FROM twophase_schema")
    sink.close()
    moved = copy_of(original)
    original.sql(f"DROP DATABASE `{original.database}`")
    [way] = re.findall("If they were moved, keep it: (.*;)", refusal(moved).remedy)
    run(moved, way)
    again = moved.opened()
    assert commit(again, moved.write(again, moved.rows([1]))) == [Committed()]
    assert moved.sql("SELECT id FROM twophase_schema") == known
    moved.opened().close()


def test_tables_of_before_that_name_no_schema_are_taken_and_name_it_from_then_on(
    sql_server_in_proof: Server,
) -> None:
    harness = MySqlHarness(sql_server_in_proof)
    harness.opened().close()
    named = "SELECT table_schema_name FROM twophase_target WHERE job = ''"
    harness.sql("DELETE FROM twophase_target WHERE job = ''")
    harness.new_sink().open(harness.context(schema=None)).close()
    assert harness.sql(named) == []
    sink = harness.new_sink().open(harness.context())
    sink.fence(FIRST)
    sink.close()
    assert harness.sql(named) == [(harness.database,)]
    refusal(copy_of(harness))
