"""What a start looks at before the first row: the table, its folder, and the rights to it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harness.paimon_harness import TABLE, PaimonHarness
from harness.rights import umask
from tests.sinks.paimon import others
from tests.sinks.paimon.others import FIELDS, committed, ids_of, rows
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, PreflightError


@pytest.fixture
def harness(tmp_path: Path) -> PaimonHarness:
    return PaimonHarness(tmp_path / "lake", FIELDS)


@pytest.mark.parametrize("place", ["", "shop.db", "shop.db/orders"])
def test_a_folder_that_everyone_can_write_is_refused_until_the_right_is_taken_away(
    harness: PaimonHarness, place: str
) -> None:
    others.make_table(harness)
    folder, before = harness.folder / place, harness.contents()
    folder.chmod(0o777)
    for call in (harness.opened, harness.new_sink().check_connection):
        with pytest.raises(PreflightError, match="writable by everyone") as caught:
            call()
        assert caught.value.remedy == f"run: chmod o-w {folder}"
    assert harness.contents() == before
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~stat.S_IWOTH)
    harness.new_sink().check_connection()
    harness.opened().close()


def test_no_table_is_made_in_a_warehouse_that_everyone_can_write(harness: PaimonHarness) -> None:
    harness.folder.chmod(0o777)
    with pytest.raises(PreflightError, match="writable by everyone"):
        harness.opened()
    assert [*harness.folder.iterdir()] == []


def test_what_is_staged_is_the_job_s_alone_whatever_the_umask(harness: PaimonHarness) -> None:
    others.make_table(harness)
    with umask(0):
        sink = harness.opened()
        harness.write(sink, rows(1))
    hidden = harness.location / "_twophase"
    folders = [hidden, *(path for path in hidden.rglob("*") if path.is_dir())]
    assert len(folders) > 5
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_the_rights_of_committed_files_are_those_of_any_file(harness: PaimonHarness) -> None:
    with umask(0o022):
        sink = harness.opened()
        assert committed(sink, harness.write(sink, rows(1))) == [Committed()]
    theirs = [path for path in harness.location.rglob("*") if "_twophase" not in path.parts]
    assert {stat.S_IMODE(path.stat().st_mode) for path in theirs if path.is_file()} == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in theirs if path.is_dir()} == {0o755}
    assert ids_of(harness) == [1]


def test_the_connection_is_checked_without_a_trace(harness: PaimonHarness) -> None:
    harness.new_sink().check_connection()  # it would be created
    with pytest.raises(ConfigError, match=r"There is no table shop\.orders in .*create=[Tt]rue"):
        harness.new_sink(create=False).check_connection()
    with pytest.raises(PreflightError, match=r"nowhere is not a folder.*create it, or correct"):
        harness.unreachable().check_connection()
    assert [*harness.folder.iterdir()] == []
    (harness.folder / "nowhere").mkdir()
    harness.unreachable().check_connection()
    others.make_table(harness)
    before = harness.contents()
    harness.new_sink(create=False).check_connection()
    assert harness.contents() == before
    with pytest.raises(ConfigError, match=r"There is no table shop\.others in"):
        harness.opened(create=False, table="shop.others")
    harness.opened(create=False, table=TABLE).close()
    harness.opened(create=True, table="shop.others").close()
    assert (harness.folder / "shop.db" / "others").is_dir()


def test_a_column_to_partition_by_that_the_rows_lack_is_named(harness: PaimonHarness) -> None:
    with pytest.raises(ConfigError, match="The rows have no column 'day' to partition by"):
        harness.opened(partition_by=["day"])
    assert [*harness.folder.iterdir()] == []
    harness.opened(partition_by=["name"]).close()
