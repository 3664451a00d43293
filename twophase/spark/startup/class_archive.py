"""An archive of Spark's classes, which a JVM maps instead of loading and verifying them.

This is Java's application class data sharing: one JVM records the archive as it ends, and later
ones with the same Java and the same jars start with less processor time. A JVM that cannot read an
archive silently starts without it.

An archive fits only the JVM and the jars that it was recorded with, so its name covers the time and
size of each. It is recorded into a temporary folder, synced and renamed: under a name there is a
whole archive, or none, or an empty folder if none could be recorded, which is tried again after a
day. Its size and a digest of samples are noted beside it, because a JVM does not check what it
maps: an archive that no longer matches them is not used, and is replaced.

`python -m twophase.spark.startup.class_archive JARS CONF` records one at lowest priority.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO

from twophase.internals import failpoints
from twophase.spark.startup.cache import cache_root, cached, drop_leftovers, is_ours
from twophase.spark.startup.java import SHORT_LIVED, java, pyspark_jars, spark_home, spark_jars
from twophase.spark.startup.worker_python import worker_python

SUBMIT_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of Spark's JVM. Not spark.driver.extraJavaOptions, which is left to the user."""

_ARCHIVE = "classes.jsa"
_ORIGIN = "origin.json"
_NAMES = "spark-*-classes-*"
_RECORDED = "recorded.json"
_LOG = "recording.log"
_RECORDING = "twophase.spark.job.class_archive_rehearsal"
_RECORD_TIMEOUT_S = 3600  # at the lowest priority, on a machine that a job may keep busy
_TRY_AGAIN_S = 24 * 3600
_REFUSES_DUPLICATES = 21
_PAGE_BYTES = 4096
_PAGES = 64
_LEAST_URGENT = 19
_OF_THE_JOB = (failpoints.VARIABLE, failpoints.LOG_VARIABLE, failpoints.DRIVER_VARIABLE)
# A mismatch costs time only, and must not look like an error in the log.
_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# Other variables that change Spark's class path.
_CLASS_PATH_VARIABLES = (
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "HADOOP_CONF_DIR",
    "YARN_CONF_DIR",
)


def takes_archives(version: int | None) -> bool:
    """Return whether Java of a version maps an archive of Spark's classes that it has recorded.

    Spark has one jar twice in its class path. Java 21 leaves the second one out when it records,
    not when it compares, and so refuses the archive (seen with 21.0.13).

    Args:
        version: as of `java_version`.
    """
    return version is None or version < _REFUSES_DUPLICATES


@dataclass(frozen=True)
class ClassArchive:
    """The archive of the installed Spark, and of further jars.

    Attributes:
        jars: the jars that a job adds to Spark's own.
    """

    jars: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder where it is, or would be."""
        identity = [*self._origin(), *map(_stamp, self._files())]
        digest = hashlib.sha256(chr(0).join(identity).encode()).hexdigest()[:12]
        return cache_root() / f"spark-{version('pyspark')}-classes-{digest}"

    def options(self) -> list[str]:
        """Return the JVM options to read it; none unless it is whole, and ours alone to write."""
        folder = self.folder
        archive = folder / _ARCHIVE
        if not _is_unchanged(folder) or not is_ours(archive):
            return []
        return [f"-XX:SharedArchiveFile={archive}", *_SILENT]

    def is_due(self) -> bool:
        """Return whether to record it: missing or damaged, and not tried lately."""
        folder = self.folder
        if (folder / _ARCHIVE).exists():
            return not _is_unchanged(folder)
        with suppress(FileNotFoundError):
            return time.time() - folder.stat().st_mtime > _TRY_AGAIN_S
        return True

    def record(self, conf: Mapping[str, str]) -> None:
        """Record it, in about half a minute, if it is due and nobody else just has.

        Args:
            conf: Spark's configuration in the jobs that will use the archive.

        Raises:
            OSError: the cache folder cannot be written.
        """
        if not self.is_due():
            return
        folder = self.folder
        cached(
            folder.name, lambda partial: self._record(partial, conf), lambda _: not self.is_due()
        )
        self._drop_outdated(folder)

    def _record(self, folder: Path, conf: Mapping[str, str]) -> None:
        (folder / _ORIGIN).write_text(json.dumps(self._origin()))
        archive = folder / _ARCHIVE
        own = {
            SUBMIT_OPTIONS_VARIABLE: shlex.join(
                [*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={archive}"]
            ),
            "PYSPARK_PYTHON": str(worker_python()),
        }
        command = [sys.executable, "-m", _RECORDING, json.dumps(dict(conf))]
        with (folder / _LOG).open("wb") as log:
            done = _run(command, os.environ | own, log)
        if not done:
            archive.unlink(missing_ok=True)
        elif archive.is_file():
            archive.chmod(0o644)
            with archive.open("rb") as written:
                os.fsync(written.fileno())
            (folder / _RECORDED).write_text(json.dumps(_fingerprint(archive)))

    def _origin(self) -> list[str]:
        """Return what identifies the archive, apart from the state of its files."""
        variables = [f"{name}={os.environ.get(name, '')}" for name in _CLASS_PATH_VARIABLES]
        # An unset SPARK_HOME means the installed Spark, which `jvm_environment` sets: the
        # archive is the same one.
        return [str(pyspark_jars()), spark_home(), *variables, *map(str, self.jars)]

    def _files(self) -> list[Path]:
        return [Path(java()).resolve(), *sorted(spark_jars().iterdir()), *self.jars]

    def _drop_outdated(self, current: Path) -> None:
        """Remove archives of older jars and of a Spark that is gone: each takes 200 MB.

        This includes the leftovers of their killed recordings.
        """
        for folder in current.parent.glob(_NAMES):
            if folder != current and not self._is_wanted(folder):
                shutil.rmtree(folder, ignore_errors=True)
        drop_leftovers(_NAMES, self._is_wanted)

    def _is_wanted(self, folder: Path) -> bool:
        """Return whether it is of other jars, whose Spark exists, or does not say of which."""
        try:
            origin = json.loads((folder / _ORIGIN).read_text())
            return origin != self._origin() and Path(origin[0]).is_dir()
        except (OSError, ValueError):
            return True


def _run(command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> bool:
    """Run a recording; return whether it succeeded. A busy machine starts without an archive.

    The recording ends when we do: its standard input is a pipe from us.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(_RECORD_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.returncode is None:  # too late, or we are interrupted
                os.killpg(process.pid, signal.SIGKILL)  # and its JVM


def _is_unchanged(folder: Path) -> bool:
    """Return whether the archive in a folder is the one that was recorded."""
    try:
        return bool(json.loads((folder / _RECORDED).read_text()) == _fingerprint(folder / _ARCHIVE))
    except (OSError, ValueError):
        return False


def _fingerprint(file: Path) -> list[int | str]:
    """Return a file's size and a digest of sample pages: the same for a copy, in a millisecond."""
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        last = max(size - _PAGE_BYTES, 0)
        for number in range(_PAGES):
            digest.update(os.pread(opened.fileno(), _PAGE_BYTES, last * number // (_PAGES - 1)))
    return [size, digest.hexdigest()]


def _stamp(file: Path) -> str:
    known = file.stat()
    # image layers keep whole seconds, which a JVM compares
    return f"{file}:{known.st_size}:{int(known.st_mtime)}"


def record_in_background(archive: ClassArchive, conf: Mapping[str, str]) -> None:
    """Record `archive` in a process that outlives this one, and uses only idle processor time.

    Raises:
        OSError: the process cannot be started.
    """
    command = [sys.executable, "-m", "twophase.spark.startup.class_archive"]
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
