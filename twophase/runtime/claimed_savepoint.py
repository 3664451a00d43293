"""The savepoint that a restore has claimed: deleted once the job has checkpoints in its place.

Flink's claim mode `CLAIM`. The savepoint counts as the oldest retained checkpoint of the restored
lineage. When `checkpoint.num_retained` newer ones are committed nothing needs it any more, and it
is disposed of. A death in between leaves that to the next checkpoint.
"""

from __future__ import annotations

import logging
from pathlib import Path

from twophase.config import ClaimMode, JobOptions
from twophase.errors import ConfigError
from twophase.runtime.savepoint_restore import is_savepoint
from twophase.state.log import JobLog
from twophase.state.savepoint import dispose
from twophase.state.storage import LocalStorage

_log = logging.getLogger("twophase")


class ClaimedSavepoint:
    """Disposes of the savepoint that the current lineage was restored from, if it is claimed.

    Args:
        job: the job's name.
        storage: the job's folder.
        options: of the job.
    """

    def __init__(self, job: str, storage: LocalStorage, options: JobOptions) -> None:
        self._job = job
        self._storage = storage
        self._num_retained = options.num_retained
        self._waits = options.claim_mode is ClaimMode.CLAIM

    def notify_checkpoint_complete(self, checkpoint: int) -> None:  # noqa: ARG002
        """Dispose of the savepoint if enough checkpoints are committed since."""
        if not self._waits:
            return
        history = JobLog(self._storage, self._job).read()
        lineage = history.lineage
        if lineage is None or not lineage.restored_from:
            self._waits = False
            return
        newer = [one for one in history.decisions if one.committed and one.lineage == lineage.id]
        if len(newer) >= self._num_retained:
            self._waits = False
            self._dispose(lineage.restored_from)

    def _dispose(self, path: str) -> None:
        if not is_savepoint(path):
            return
        try:
            dispose(LocalStorage(Path(path), "restore.path"), path)
        except (ConfigError, OSError) as error:
            _log.warning(
                "job %s: the savepoint %s that it has claimed is not deleted: %s",
                *(self._job, path, error),
            )
        else:
            _log.info("job %s: the savepoint %s that it has claimed is deleted", self._job, path)

    def notify_checkpoint_aborted(self, checkpoint: int) -> None:
        """Do nothing: nothing has replaced the savepoint."""

    def notify_checkpoint_subsumed(self, checkpoint: int) -> None:
        """Do nothing: the savepoint goes when a checkpoint completes."""
