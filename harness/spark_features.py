"""Skips tests of what not every supported version of PySpark has."""

from __future__ import annotations

import pytest

from twophase.spark_versions import SPARK, Feature


def needs(feature: Feature) -> pytest.MarkDecorator:
    """Return the mark of tests that are skipped where this version of PySpark lacks a feature."""
    return pytest.mark.skipif(not feature.is_here, reason=why_not(feature))


def why_not(feature: Feature) -> str:
    """Return why tests of a feature are skipped."""
    return f"{feature.name} needs PySpark {feature.versions}, this is {'.'.join(map(str, SPARK))}"
