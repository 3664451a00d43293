"""Runs a pipeline: this process becomes `spark-pipelines`, which starts a server of Spark Connect.

python -m integration.pipelines.driver '{"arguments": ["run", "--spec", ...], "conf": {...}}'
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

from harness.spark_programs import become

SETTINGS = "spark.orders.settings"
"""The setting of a specification that its definitions read: JSON in hexadecimal digits, since Spark
4.2.1 tells nobody a value with the word password in it.
"""


def main(settings: dict[str, Any]) -> NoReturn:
    """Run it to its end."""
    _wait_for_the_port()
    become("spark-pipelines", settings["arguments"], settings["conf"])


def _wait_for_the_port() -> None:
    """Wait until no other test runs a pipeline on this machine: a local server of Spark Connect has
    always the same port. The lock ends with the processes that this one becomes.
    """
    lock = Path(tempfile.gettempdir(), "twophase-spark-pipelines.lock")
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    os.set_inheritable(descriptor, True)
    fcntl.flock(descriptor, fcntl.LOCK_EX)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
