"""`python -m twophase.spark.startup.recording JARS CONF`: records an archive at lowest priority."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from twophase.internals import failpoints
from twophase.spark.startup.class_archive import ClassArchive

_LEAST_URGENT = 19
_OF_THE_JOB = (failpoints.VARIABLE, failpoints.LOG_VARIABLE, failpoints.DRIVER_VARIABLE)


def record_in_background(archive: ClassArchive, conf: Mapping[str, str]) -> None:
    """Record `archive` in a process that outlives this one, and uses only idle processor time.

    Raises:
        OSError: the process cannot be started.
    """
    command = [sys.executable, "-m", "twophase.spark.startup.recording"]
    process = subprocess.Popen(
        [*command, json.dumps(list(map(str, archive.jars))), json.dumps(dict(conf))],
        env={name: value for name, value in os.environ.items() if name not in _OF_THE_JOB},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=process.wait, name="twophase-recording", daemon=True).start()


def main() -> None:
    """Record the archive that the arguments describe."""
    jars, conf = map(json.loads, sys.argv[1:])
    os.nice(_LEAST_URGENT)
    ClassArchive(tuple(map(Path, jars))).record(conf)


if __name__ == "__main__":
    main()
