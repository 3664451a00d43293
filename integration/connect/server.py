"""A server of Spark Connect, as `start-connect-server.sh` starts it: this process becomes its JVM.

python -m integration.connect.server '{"port": 15002, "master": "local[2]"}'
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from harness.spark_programs import become
from integration.mysql.driver import connector_conf
from twophase.spark.plan import shuffles
from twophase.spark.startup.daemon import MODULE
from twophase.spark.startup.quick_start import DAEMON_KEY
from twophase.testing.services.ports import LOOPBACK

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"


def main(settings: dict[str, Any]) -> NoReturn:
    """Serve until somebody ends the process."""
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": settings["port"],
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        shuffles.FULL_RETRY: "true",  # Spark's own from 4.2 on
        DAEMON_KEY: MODULE,
        **connector_conf(),
    }
    become("spark-submit", ["--class", _CLASS, "--master", settings["master"]], conf)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
