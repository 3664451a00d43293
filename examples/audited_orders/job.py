"""Orders from a folder of JSON lines into an Iceberg table, exactly once: written to branch
`audit`, audited, and published only if all of them pass. Run it again when there are more orders.

    python -m examples.audited_orders.job ORDERS LAKE
"""

import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import twophase
from twophase.sinks.iceberg import IcebergSink

ORDERS, LAKE = sys.argv[1], Path(sys.argv[2])
CATALOG = f"sqlite:///{LAKE.absolute()}/catalog.db"
TABLE, BRANCH = "shop.orders", "audit"
WRONG = "amount IS NULL OR amount < 0"

LAKE.mkdir(parents=True, exist_ok=True)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
orders = spark.readStream.schema("id long, customer string, amount double, at timestamp").json(
    ORDERS
)

# 1. Write. Readers of the table do not see the branch.
sink = IcebergSink(
    catalog_uri=CATALOG,
    table=TABLE,
    branch=BRANCH,
    create=True,
    warehouse=f"{LAKE.absolute()}/warehouse",
    partition_by=["day(at)"],
    schema_change="add_columns",
)
job = (
    twophase.write_stream(orders, name="orders")
    .sink("lake", sink)
    .option("checkpointLocation", f"{LAKE.absolute()}/job")
    .trigger(availableNow=True)
    .start()
)
job.await_termination()
spark.stop()

# 2. Audit.
table = SqlCatalog("default", uri=CATALOG).load_table(TABLE)
audited = table.snapshot_by_name(BRANCH)
if audited is None:
    sys.exit("There are no orders yet.")
wrong = table.scan(row_filter=WRONG, snapshot_id=audited.snapshot_id).to_arrow()
if wrong.num_rows:
    sys.exit(f"Not published, {wrong.num_rows} orders are wrong: {wrong['id'].to_pylist()}")

# 3. Publish: main is set to what was audited, in one step.
table.manage_snapshots().set_current_snapshot(snapshot_id=audited.snapshot_id).commit()
print(f"Published: {table.refresh().scan().count()} orders.")
