"""What was seen of a run: read off the durable bytes and the servers, with no code of the product.

`oracle` judges it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verification.simulation.branches import Phase
from verification.simulation.decisions import FORMAT_ID, Decision, Piece
from verification.simulation.disk import Disk, File, Folder
from verification.simulation.scheduler import Process, Scheduler
from verification.simulation.server import Server


@dataclass
class Facts:
    """What was seen.

    Attributes:
        scheduler: stopped when something does not hold.
        disk: where the job's folders are.
        expected: the rows of a chunk of the input and a subtask.
        servers: of the targets.
        decided: by the job's folder, lineage and number.
        ahead: the sinks that commit ahead of their checkpoint: by the same and the sink's name.
        superseded: decisions as they were before a repair.
        visible: the pieces that a target shows.
        lost: what somebody has rolled back by hand although it is decided.
        generation: the newest fence in each job's log, by its folder.
        records: how many records each log has got.
        restored: the checkpoints that lineages were begun from.
        folders: the job's folder of each driver process.
        fencers: whose the newest fence in each log is.
        fences: the newest generation of each process.
        owners: the processes that know of a fence of their own. One that does not know whether its
            last record is there may have two.
        stopped: the processes that were asked to stop.
        saving: those of them that are to leave a savepoint.
        adopting: those that adopt what the targets have proof of.
        abandoning: those that give up a rewind.
        aborted: the processes that have aborted a prepared piece.
        several_folders: whether drivers over several folders live at once.
        taken: pieces that a driver over another folder has rolled back, or over the one that was
            put in place of theirs.
        taken_back: pieces that a rewind has taken back.
        withdrawn: pieces that may not become visible any more: given up, or written again.
        undone: pieces that were visible in a target before it was restored from a
            backup or swapped.
        gone: pieces that were prepared or visible in it, and are neither now.
        emptied: those of `undone` whose table is empty now, while their proofs are there.
        changes: how often a target was restored from a backup or swapped.
    """

    scheduler: Scheduler
    disk: Disk
    expected: Callable[[int, int], list[tuple[int, int]]]
    servers: list[Server] = field(default_factory=list)
    decided: dict[tuple[str, str, int], Decision] = field(default_factory=dict)
    ahead: dict[tuple[str, str, int, str], Decision] = field(default_factory=dict)
    superseded: list[Decision] = field(default_factory=list)
    visible: dict[str, Piece] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    generation: dict[str, int] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)
    restored: set[str] = field(default_factory=set)
    folders: dict[Process, str] = field(default_factory=dict)
    fencers: dict[str, Process] = field(default_factory=dict)
    fences: dict[Process, int] = field(default_factory=dict)
    owners: set[Process] = field(default_factory=set)
    stopped: set[Process] = field(default_factory=set)
    saving: set[Process] = field(default_factory=set)
    adopting: set[Process] = field(default_factory=set)
    abandoning: set[Process] = field(default_factory=set)
    aborted: set[Process] = field(default_factory=set)
    several_folders: bool = False
    taken: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)
    withdrawn: set[str] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    changes: int = 0

    def violated(self, what: str) -> None:
        """Something is wrong."""
        self.scheduler.stop(what)

    def holds(self, condition: bool, what: str) -> None:
        if not condition:
            self.violated(what)

    # -- the logs ----------------------------------------------------------------------------------

    def known(self) -> list[Decision]:
        """All that was ever decided, also what a repair has taken the place of."""
        return [*self.decided.values(), *self.ahead.values(), *self.superseded]

    def _decision_of(self, xid: str) -> Decision | None:
        found = (*self.decided.values(), *self.ahead.values())
        return next((one for one in found if xid in one.xids), None)

    def _before(self, decision: Decision) -> list[Decision]:
        """Older decisions of its lineage."""
        mine = (decision.root, decision.lineage)
        own = [found for found in self.decided.values() if (found.root, found.lineage) == mine]
        return [found for found in own if found.checkpoint < decision.checkpoint]

    def fence_of(self, process: Process) -> int:
        """The newest generation with which a process has taken a job over; 0 if it has not."""
        return self.fences.get(process, 0)

    def own_fence(self) -> int:
        """That of the process whose turn it is."""
        return self.fence_of(self._process())

    def newest_fence(self, root: str) -> int:
        newest = 0
        for _, data in sorted(self._records(root).items()):
            header, _, payload = data.partition(b"\n")
            if header.startswith(b"twophase/1 FENCE "):
                newest = json.loads(payload)["record"]["generation"]
            if header.startswith(b"twophase/1 SUBSUMED"):  # what is before it may be a latecomer's
                newest = json.loads(payload)["record"]["history"]["generation"]
        return newest

    def read_body(self, path: str, digest: str) -> tuple[Any, dict[str, str]]:
        """The body that a record names, and of each of its pieces the name of its sink."""
        try:
            file = self.disk.find(path)
        except FileNotFoundError:
            file = File()
        data = bytes(file.data) if isinstance(file, File) else b""
        self.holds(
            hashlib.sha256(data).hexdigest() == digest,
            f"I1: {path} is not the body that was decided",
        )
        self.holds(self.disk.is_durable(path), f"I1: {path} is decided and not durable")
        body = json.loads(
            data.partition(b"\n")[2]
            or b'{"committables": {}, "offsets": {"end": ["{\\"next\\": 0}"]}}'
        )
        sinks = {
            xid_of(piece): sink for sink, pieces in body["committables"].items() for piece in pieces
        }
        return body, sinks

    def _records(self, root: str) -> dict[str, bytes]:
        """The log, without temporary names."""
        folder = self.disk.find(f"{root}/log")
        assert isinstance(folder, Folder)
        return {
            name: bytes(node.data)
            for name, node in folder.entries.items()
            if isinstance(node, File) and not name.startswith(".")
        }

    # -- the targets -------------------------------------------------------------------------------

    def is_prepared(self, xid: str) -> bool:
        branches = [server.branches[xid] for server in self.servers if xid in server.branches]
        return [branch.phase for branch in branches] == [Phase.PREPARED]

    def was_prepared(self, xid: str) -> bool:
        """Whether a branch is prepared, but for what befell it or its server since."""
        return self.is_prepared(xid) or xid in self.taken or xid in self.gone

    def is_there(self, path: str) -> bool:
        """Whether a file or a folder is there."""
        try:
            self.disk.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_forgotten(self, xid: str) -> bool:
        """Whether somebody has rolled a piece back by hand, and an older copy of the folder has its
        records read again: only a savepoint lists it.
        """
        listed = (*self.decided.values(), *self.ahead.values())
        return xid in self.lost and not any(xid in one.xids for one in listed)

    def is_gone(self, xid: str) -> bool:
        """Whether something befell a piece, so that its rows are not there."""
        gone = (self.lost, self.taken, self.taken_back, self.undone, self.gone)
        return any(xid in one for one in gone)

    def is_in_mid_commit(self) -> bool:
        """Whether a sink shows some pieces of a checkpoint and lacks others: a backup of
        that is a known limit.
        """
        parts = Counter(
            (
                decision.root,
                decision.lineage,
                decision.checkpoint,
                Piece.of(xid).sink,
                xid in self.visible,
            )
            for decision in (*self.decided.values(), *self.ahead.values())
            for xid in decision.xids
        )
        return any((*key, True) in parts and (*key, False) in parts for *key, _ in parts)

    def missing(self) -> set[str]:
        """Decided pieces that no target has or can get any more."""
        decided = {xid for decision in self.decided.values() for xid in decision.xids}
        return self.undone | (self.gone & decided)

    def is_ahead(self, root: str) -> bool:
        """Whether a sink knows more than the log of a job."""
        known = {
            (decision.lineage.replace("-", ""), decision.checkpoint)
            for decision in (*self.decided.values(), *self.ahead.values())
            if decision.root == root
        }
        fences = [
            attempt[0]
            for server in self.servers
            for attempt in server.engine.table("fence").values()
        ]
        return max(fences, default=0) > self.generation.get(root, 0) or any(
            (piece.lineage, piece.checkpoint) not in known for piece in self.visible.values()
        )

    # -- the drivers -------------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        """That of the driver whose turn it is, or whose task has it; empty if it is nobody's."""
        return self.folders.get(self._process(), "")

    def _is_overtaken(self) -> bool:
        """Whether the newest fence is another driver's."""
        newest = max(self.generation, key=self.generation.__getitem__)
        return self.fencers[newest] is not self._process()

    def _process(self) -> Process:
        process = self.scheduler.current.process
        return process.parent or process


def xid_of(piece: dict[str, Any]) -> str:
    """The branch of a piece, as a record or a body has it."""
    return f"'{piece['handle']['gtrid']}','{piece['handle']['bqual']}',{FORMAT_ID}"
