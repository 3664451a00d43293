"""The driver process of the soak: the job of `integration.mysql.driver`, for ever, with every
timeout short, writing a journal.

python -m integration.soak.driver '{"source": {...}, "location": ..., "sinks":
{...}, "journal": FILE}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

from harness import workload
from integration.mysql import driver
from twophase.errors import TwoPhaseError
from twophase.testing.journal import Journal
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> int:
    """Run until another driver takes over."""
    die_with_parent()
    spark = driver.session(settings["master"])
    frame = (
        spark.readStream.format("twophase-kafka")
        .options(**settings["source"])
        .schema(workload.SCHEMA)
        .load()
    )
    job = (
        driver.writer(frame, settings)
        .trigger(processingTime="0 seconds")
        .observer(Journal(settings["journal"]))
    )
    try:
        job.start().await_termination()
    except TwoPhaseError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
