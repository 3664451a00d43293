"""Coming formats of Spark's checkpoint folder are refused before Spark writes one."""

from __future__ import annotations

import pytest

from twophase.errors import PreflightError
from twophase.spark.folder import folder_formats
from twophase.spark.folder.folder_formats import KNOWN

COMING = [
    ("spark.sql.streaming.offsetLog.formatVersion", "2"),
    ("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true"),
    ("spark.sql.streaming.queryEvolution.enableSourceEvolution", " TRUE"),
    ("spark.sql.streaming.queryEvolution.enableSinkEvolution", "true"),
]


@pytest.mark.parametrize(("key", "value"), COMING)
def test_a_setting_with_another_format_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(PreflightError) as refused:
        folder_formats.check("Job 'orders'", {key: value})
    assert str(refused.value).startswith(f"Job 'orders': {key} is {value}, and Spark would write")
    assert refused.value.remedy == f"set `{key}={KNOWN[key]}`, Spark's default, or leave it out."


def test_the_remedy_helps() -> None:
    folder_formats.check("Job 'orders'", {})
    folder_formats.check("Job 'orders'", KNOWN)
    capitals = {key: value.upper() for key, value in KNOWN.items()}
    folder_formats.check("Job 'orders'", capitals)
