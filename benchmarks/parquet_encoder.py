"""What a data file of files and Hive costs in the encoder, and what its settings would change.

The rows are orders as they come from Kafka, 250,000 a file, as a task of the other benchmarks has
them. Each round writes them once with each setting, so that what the machine does beside it falls
on all of them. Seconds of the processor count: a task has one core.

    python -m benchmarks parquet_encoder --rows 250000 --rounds 15
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import click
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from benchmarks.orders import order
from benchmarks.report import Ratio, Result, table
from twophase.sinks.common.staging.parquet_dictionaries import with_dictionary
from twophase.sinks.common.staging.parquet_statistics import with_bounds

_OURS = "as the sinks write: dictionaries where values come again, bounds, snappy"
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    _OURS: {},
    "a dictionary for every column": {"use_dictionary": True},
    "no dictionaries": {"use_dictionary": False},
    "a dictionary for the product alone": {"use_dictionary": ["product"]},
    "no statistics": {"write_statistics": False},
    "not compressed": {"compression": "none"},
    "lz4": {"compression": "lz4"},
    "zstd, level 1": {"compression": "zstd", "compression_level": 1},
    "zstd, level 9": {"compression": "zstd", "compression_level": 9},
    "pages of version 2": {"data_page_version": "2.0"},
    "no dictionaries, no statistics, not compressed": {
        "use_dictionary": False,
        "write_statistics": False,
        "compression": "none",
    },
}


@click.command("parquet_encoder")
@click.option("--rows", default=250_000, show_default=True, help="Of each file.")
@click.option("--rounds", default=15, show_default=True, help="Files with each setting.")
def command(rows: int, rounds: int) -> None:
    """The Parquet encoder of files and Hive, by setting."""
    lines = b"\n".join(order(number) for number in range(rows))
    orders = pyarrow.json.read_json(pa.BufferReader(lines))
    took: dict[str, list[float]] = {name: [] for name in _SETTINGS}
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for name, settings in _SETTINGS.items():
            seconds, sizes[name] = _encode(orders, settings)
            took[name].append(seconds)
    p50 = {name: statistics.median(found) for name, found in took.items()}
    shown = table(
        f"Parquet, {rows:,} orders", "settings", "CPU s a million rows (p50)", "bytes a row"
    )
    for name in _SETTINGS:
        shown.add_row(name, f"{p50[name] * 1_000_000 / rows:.3f}", f"{sizes[name] / rows:.1f}")
    ratios = [
        Ratio(name, "as it is", p50[name] / p50[_OURS], "CPU s a row")
        for name in _SETTINGS
        if name != _OURS
    ]
    Result("parquet_encoder", [shown], ratios).show()


def _encode(rows: pa.Table, settings: Mapping[str, Any]) -> tuple[float, int]:
    """Return the processor seconds that a file takes, and its bytes.

    Args:
        rows: of the file.
        settings: those that are other than the sinks'.
    """
    sink = pa.BufferOutputStream()
    began_s = time.process_time()
    ours = {"use_dictionary": with_dictionary(rows), "write_statistics": with_bounds(rows)}
    pyarrow.parquet.write_table(rows, sink, **{**ours, **settings})
    return time.process_time() - began_s, sink.getvalue().size
