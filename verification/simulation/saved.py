"""What the oracle knows of savepoints, and what must be true at the moment of each of their steps.

| step | what must be true |
|---|---|
| the manifest is written | the checkpoint is decided; all data are durable; whatever of it, or of a
checkpoint before it, is not visible yet is listed as pending |
| it is noted as finished | all that it holds is visible |
| a lineage begins with it | nothing after its checkpoint is visible in a sink, or decided in this
folder; the lineage before did not begin with it; from then on what the job has left in another
folder is undecided |
| a driver over another folder aborts what was decided after it | no sink shows that checkpoint |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from verification.simulation.decisions import Decision
from verification.simulation.disk import File, Folder
from verification.simulation.facts import Facts

MANIFEST, FINISHED = "_savepoint", "_finished"


@dataclass(frozen=True)
class Saved:
    """A savepoint, read off its bytes.

    Attributes:
        root: the job's folder that it was made of.
        lineage: of its checkpoint.
        checkpoint: its number.
        ancestors: the last checkpoint of each lineage that a restored one continues.
        pending: the names of the bodies that a restore has to commit.
        chunk: of the input.
    """

    root: str
    lineage: str
    checkpoint: int
    ancestors: Mapping[str, int]
    pending: frozenset[str]
    chunk: int

    def is_behind(self, decision: Decision) -> bool:
        """Whether a checkpoint was decided after it."""
        return decision.checkpoint > self.ancestors.get(decision.lineage, -1)


@dataclass
class SavedOnes:
    """The savepoints of a run.

    Attributes:
        by_path: each one that is whole, also by the path that it was moved to.
        durable: the pieces whose decision is durable in one.
        forks: the folders of other jobs that begin with a savepoint.
        rewinders: the folders in which a restore was started that rewinds.
        begun: the job's folder and the id of each lineage, and the path that it began with.
        rewinding: the folders of jobs that have begun a rewind, and not the lineage after it.
        taken_back: the pieces that sinks have taken back.
        left: decisions that a lineage has left behind.
        moved_to: of each other folder in which a savepoint is restored the savepoint's path.
    """

    by_path: dict[str, Saved] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    forks: set[str] = field(default_factory=set)
    rewinders: set[str] = field(default_factory=set)
    begun: dict[tuple[str, str], str] = field(default_factory=dict)
    rewinding: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)
    left: list[Decision] = field(default_factory=list)
    moved_to: dict[str, str] = field(default_factory=dict)

    def linked(self, facts: Facts, path: str, data: bytes) -> None:
        """A file of a savepoint has got its name."""
        where, _, name = path.rpartition("/")
        if name == MANIFEST:
            self._made(facts, where, json.loads(data.partition(b"\n")[2]))
        elif name == FINISHED:
            waiting = [xid for xid in self._held(facts, where) if xid not in facts.visible]
            facts.holds(not waiting, f"I8: {where} is called finished, and {waiting} wait")

    def synced(self, facts: Facts, folder: str) -> None:
        """A folder was synced: a manifest in it is durable, with all decisions that it holds."""
        if folder in self.by_path:
            self.durable.update(self._held(facts, folder))

    def begins(self, facts: Facts, root: str, lineage: str, where: str) -> None:
        """A lineage begins in a job's folder with what is at a path."""
        saved = self.by_path.get(where)
        newest = [path for (folder, _), path in self.begun.items() if folder == root][-1:]
        facts.holds(saved is None or newest != [where], f"{where} is restored twice in a row")
        self.begun[root, lineage] = where
        if root in self.forks:
            waiting = [xid for xid in self._held(facts, where) if xid not in facts.visible]
            return facts.holds(
                not waiting, f"H30: a fork of {where} begins, and {waiting} are not committed"
            )
        rewinds = root in self.rewinding
        self.rewinding.discard(root)
        if saved is None:
            return None
        for key, decision in list(facts.decided.items()):
            if not saved.is_behind(decision):
                continue
            shown = [xid for xid in decision.xids if xid in facts.visible]
            waits = decision.root == root and not (rewinds and decision.committed)
            facts.holds(
                not waits and not shown,
                f"H28: {where} is restored, and checkpoint {decision.checkpoint} was decided after "
                f"it; sinks show {shown}",
            )
            self.left.append(facts.decided.pop(key))
        return None

    def is_too_old(self, facts: Facts, root: str, where: str) -> bool:
        """Whether something was decided after it, but for what continues it in a job's folder."""
        saved = self.by_path.get(where)
        return saved is not None and any(
            saved.is_behind(decision) and self.begun.get((root, decision.lineage)) != where
            for decision in (*facts.decided.values(), *facts.ahead.values())
        )

    def is_taken_back(self, facts: Facts, where: str) -> bool:
        """Whether a rewind has taken back rows that it, or what it continues, has written."""
        saved = self.by_path.get(where)
        return saved is not None and any(
            not self.taken_back.isdisjoint(decision.xids) and not saved.is_behind(decision)
            for decision in (*facts.known(), *self.left)
        )

    def may_abort(self, facts: Facts, root: str, decision: Decision) -> bool:
        """Whether a driver over one folder may abort what was decided in another."""
        saved = self.by_path.get(self.moved_to.get(root, ""))
        shown = any(xid in facts.visible for xid in decision.xids)
        free = root in self.rewinders or not shown
        return saved is not None and saved.is_behind(decision) and free

    def _held(self, facts: Facts, where: str) -> list[str]:
        """The pieces of all that a savepoint has as pending."""
        saved = self.by_path[where]
        return [
            xid
            for decision in facts.known()
            if decision.body.split("/")[-2] in saved.pending
            for xid in decision.xids
        ]

    def _made(self, facts: Facts, where: str, manifest: Mapping[str, object]) -> None:
        root, lineage, number = facts.folder, manifest["lineage"], manifest["checkpoint"]
        assert isinstance(lineage, str)
        assert isinstance(number, int)
        decision = facts.decided.get((root, lineage, number))
        if decision is None and root in {folder for folder, _ in self.begun}:
            # of a job that was restored and has no checkpoint of its own yet
            elsewhere = (*facts.decided.values(), *self.left)
            of = (lineage, number)
            decision = next((one for one in elsewhere if (one.lineage, one.checkpoint) == of), None)
        if decision is None:
            return facts.violated(f"I1: {where} is of {lineage}/{number}, which is undecided")
        pending, ancestors = manifest["pending"], manifest["ancestors"]
        assert isinstance(pending, list)
        assert isinstance(ancestors, dict)
        saved = Saved(
            root,
            lineage,
            number,
            {**ancestors, lineage: number},
            frozenset(path.split("/")[-2] for path in pending),
            decision.chunk,
        )
        lacking = [
            xid
            for found in facts.decided.values()
            if found.root == root and not saved.is_behind(found)
            for xid in found.xids
            if xid not in facts.visible and found.body.split("/")[-2] not in saved.pending
        ]
        facts.holds(not lacking, f"H30: {where} leaves out {lacking}, which are not committed yet")
        self._check_durable(facts, where)
        self.by_path[where] = saved
        return None

    def _check_durable(self, facts: Facts, where: str) -> None:
        folder = facts.disk.find(f"{where}/data")
        assert isinstance(folder, Folder)
        torn = [
            name
            for name, node in folder.entries.items()
            if isinstance(node, File)
            and not name.startswith(".")
            and not facts.disk.is_durable(f"{where}/data/{name}")
        ]
        facts.holds(not torn, f"HD1: {where} has its manifest, and {torn} are not durable")


def newest_of(facts: Facts, root: str) -> Decision | None:
    """The newest decision in a job's folder."""
    mine = [found for found in facts.decided.values() if found.root == root]
    return max(mine, key=lambda found: found.chunk, default=None)
