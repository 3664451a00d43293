"""What a run of a query tells the processes that Spark starts for it, one after the other.

A small file in the folder that Spark makes on the driver for this one application: it is there as long as the run is going
on, and can neither outlive the application nor be seen by another. Nothing is decided by it. A run whose note is lost takes
the job over again, and a commit without its note is refused.
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
    """The micro-batch that is under way.

    Attributes:
        checkpoint: its number.
        generation: of the run.
        counter: of its attempt.
        replay: it is decided already, so its tasks write nothing.
    """

    checkpoint: int
    generation: int
    counter: int
    replay: bool

    @property
    def attempt(self) -> Attempt:
        """The attempt that its tasks write for."""
        return Attempt(self.generation, self.counter)


class RunNotes:
    """Where the note of one job lies.

    Args:
        folder: the job's folder.
        query: `PluginDescription.fingerprint`. The note of another query is none: its run has ended, and what it had fenced
            and checked was its own target.

    Raises:
        PreflightError: this process was not started by Spark on the driver.
    """

    def __init__(self, folder: Path, query: str) -> None:
        local = os.environ.get(_LOCAL_DIRS, "").split(",")[0]
        if not Path(local).is_dir() or not local:
            raise PreflightError(
                f"{_LOCAL_DIRS} names no folder ({local!r}): this is no process of a Spark driver.",
                remedy="use this format in writeStream only.",
            )
        self._query = query
        self._path = Path(local) / f"twophase-{short_hash(str(folder), 32)}"

    def read(self) -> RunNote | None:
        """The note of this query's run that is going on in this application, None if there is none."""
        try:
            fields = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        return RunNote(**fields) if fields.pop("query") == self._query else None

    def write(self, note: RunNote) -> None:
        """Replace it."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"query": self._query, **asdict(note)}))
        temporary.replace(self._path)

    def delete(self) -> None:
        """The run has ended: what comes next is another one. Always before a fence is appended for that."""
        self._path.unlink(missing_ok=True)
