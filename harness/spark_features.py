"""Marks tests of what not every supported version of PySpark has."""

from __future__ import annotations

import pytest

from twophase.spark_versions import SPARK, Feature


def needs(feature: Feature) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped where this version of PySpark lacks a feature."""
    why = f"{feature.name} needs PySpark {feature.versions}, this is {'.'.join(map(str, SPARK))}"
    return pytest.mark.skipif(not feature.is_here, reason=why)
