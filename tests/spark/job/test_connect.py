"""`write_stream` refuses Spark Connect by name, before anything is asked of it; the plugin form
takes it (tests/spark/plugin/test_connect.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from twophase.errors import ConfigError
from twophase.spark.job.stream_writer import write_stream


class Remote:
    """A DataFrame of Spark Connect, which is a class of its own and has nothing of the JVM."""

    isStreaming = True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"[JVM_ATTRIBUTE_NOT_SUPPORTED] Attribute `{name}` is not supported in Spark Connect"
        )


def test_write_stream_points_to_the_plugin_form() -> None:
    with pytest.raises(ConfigError, match="belongs to a Spark Connect session") as refused:
        write_stream(Remote(), name="orders")  # type: ignore[arg-type]
    assert "use the plugin form" in refused.value.remedy
