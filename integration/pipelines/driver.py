"""Runs a pipeline: this process becomes `spark-pipelines`, which starts a server of Spark Connect.

python -m integration.pipelines.driver '{"arguments": ["run", "--spec", ...]}'
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from harness.spark_programs import become

SETTINGS = "spark.orders.settings"
"""The setting of a specification that its definitions read: JSON in hexadecimal digits, since Spark
4.2.1 tells nobody a value with the word password in it.
"""


def main(settings: dict[str, Any]) -> NoReturn:
    """Run it to its end."""
    become("spark-pipelines", settings["arguments"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
