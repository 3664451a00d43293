"""DuckDB, which reads Iceberg tables without the product and without pyiceberg."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import duckdb


def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """Return a connection with the Iceberg extension, from packages: nothing is fetched."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "iceberg"):
        folder = resources.files(f"duckdb_extension_{name}") / "extensions"
        [file] = Path(str(folder)).glob("*/*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")
    return connection
