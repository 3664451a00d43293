"""A note from a run of a query to the processes that Spark starts for it, one after the other.

It is a small file in the folder that Spark creates on the driver for this application. It exists
while the run goes on, and can neither outlive the application nor be seen by another. No decision
depends on it: a run whose note is lost takes the job over again, and a commit without
its note is refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from twophase.errors import PreflightError
from twophase.ids import Attempt, short_hash

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"


@dataclass(frozen=True)
class RunNote:
    """The micro-batch in progress.

    Attributes:
        checkpoint: its number.
        generation: the generation of the run.
        counter: the counter of its attempt.
        replay: whether it is decided already, so that its tasks write nothing.
        planned_ms: Unix time when it was planned.
    """

    checkpoint: int
    generation: int
    counter: int
    replay: bool
    planned_ms: int

    @property
    def attempt(self) -> Attempt:
        """The attempt that its tasks write for."""
        return Attempt(self.generation, self.counter)


class RunNotes:
    """Reads and writes the note of one job.

    Args:
        folder: the job's folder.
        query: `PluginDescription.fingerprint`. A note of another query does not count: its run has
            ended, and it fenced and checked its own target.

    Raises:
        PreflightError: this process was not started by Spark on the driver.
    """

    def __init__(self, folder: Path, query: str) -> None:
        local = os.environ.get(_LOCAL_DIRS, "").split(",")[0]
        if not Path(local).is_dir() or not local:
            raise PreflightError(
                f"{_LOCAL_DIRS} does not name a folder ({local!r}): "
                "a Spark driver did not start this process.",
                remedy="use this format only with writeStream.",
            )
        self._query = query
        self._path = Path(local) / f"twophase-{short_hash(str(folder), 32)}"

    def read(self) -> RunNote | None:
        """Return the note of this query's current run in this application, if there is one."""
        try:
            fields = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        return RunNote(**fields) if fields.pop("query", None) == self._query else None

    def write(self, note: RunNote) -> None:
        """Replace the note."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"query": self._query, **asdict(note)}))
        temporary.replace(self._path)

    def delete(self) -> None:
        """Delete the note, as the run has ended. Always called before the next run's fence."""
        self._path.unlink(missing_ok=True)
