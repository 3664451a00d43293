"""A row of a far future is stored, whatever its time: what is wrong about it is only reported."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from twophase.ids import Subtask
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.names import Owner
from twophase.sinks.common.staging.partition_time import PartitionTime
from twophase.sinks.common.staging.preflight import create_staging_area
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.writer import AHEAD, ROW_AHEAD, StagedWriter
from twophase.testing.harness import FIRST, JOB, SINK, transaction_id

YEAR_58692 = 1_790_000_000_000 * 10**6
"""Milliseconds since 1970, taken for seconds."""
TIME = PartitionTime(("day",), "$day", "at", delay_us=0, zone="UTC", max_future_us=10**6)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "GMT+1", None])
@pytest.mark.parametrize("moment", [YEAR_58692, 4 * 10**15])
@pytest.mark.parametrize("in_a_list", [False, True])
def test_a_row_ahead_is_stored_and_shown(
    tmp_path: Path, zone: str | None, moment: int, in_a_list: bool
) -> None:
    area = create_staging_area(tmp_path, Owner(JOB, SINK))
    area.raise_fence(FIRST)
    table = Table(area, Format.PARQUET, ("day",), "it", time=TIME, in_metastore=True)
    writer = StagedWriter(table, transaction_id(), Subtask(0, 0))
    times = pa.array([0, moment]).cast(pa.timestamp("us", zone))
    more = pa.ListArray.from_arrays([0, 1, 2], times) if in_a_list else times
    days = pa.array(["2026-01-01"] * 2)
    writer.write(pa.RecordBatch.from_pydict({"at": times, "more": more, "day": days}))
    piece = writer.pre_commit()
    assert piece is not None
    assert (piece.rows, piece.handle[AHEAD], piece.handle["watermark_us"]) == (2, moment, 0)
    assert "'day': '2026-01-01'" in str(piece.handle[ROW_AHEAD])
