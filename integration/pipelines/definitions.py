"""The file of a pipeline under test: for each query of a scenario a sink and a flow of its name.

Read by `spark-pipelines`, from a copy beside the specification.
"""

from __future__ import annotations

import json

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import twophase
from integration.mysql.driver import read
from integration.pipelines.driver import SETTINGS
from twophase.testing.parent_death import die_with_parent

die_with_parent()
spark = SparkSession.active()
twophase.register(spark)
settings = json.loads(bytes.fromhex(str(spark.conf.get(SETTINGS))))

for name, job in settings["jobs"].items():
    dp.create_sink(name, job["format"], {"name": name, **job["options"]})

    for flow in (name, f"{name}_again") if settings.get("second_flow") else (name,):

        @dp.append_flow(target=name, name=flow)
        def orders() -> DataFrame:
            """Every record of the topic."""
            return read(spark, settings)
