"""What an install brings: a platform has its own Spark, which no other extra may replace."""

from __future__ import annotations

import re
from importlib.metadata import requires

_BRINGS_SPARK = re.compile(r"^(pyspark|delta-spark)\b")
_EXTRA = re.compile(r"extra == [\"']([\w-]+)[\"']")


def test_only_the_extras_of_spark_and_delta_bring_pyspark() -> None:
    found = [one for one in requires("twophase") or [] if _BRINGS_SPARK.match(one)]
    assert all(_EXTRA.search(one) for one in found), "twophase alone brings a Spark"
    extras = {extra for one in found for extra in _EXTRA.findall(one)}
    assert extras == {"spark", "delta", "dev"}
