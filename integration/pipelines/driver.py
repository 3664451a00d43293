"""Runs a pipeline: this process becomes `spark-pipelines`, which starts a server of Spark Connect.

python -m integration.pipelines.driver '{"arguments": ["run", "--spec", ...]}'
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from harness.spark_programs import become

SETTINGS = "spark.orders.settings"
"""The setting of a specification that its definitions read."""


def main(settings: dict[str, Any]) -> NoReturn:
    """Run it to its end."""
    become("spark-pipelines", settings["arguments"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
