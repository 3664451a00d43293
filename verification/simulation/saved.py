"""What the oracle knows of savepoints, and what must be true at the moment of each of their steps.

| step | what must be true |
|---|---|
| the manifest is written | the checkpoint is decided; all data are durable; whatever of it, or of a
checkpoint before it, is not visible yet is listed as pending |
| it is noted as finished | all that it holds is visible |
| a lineage begins with it | nothing after its checkpoint is visible in a sink, or decided in this
folder; no lineage of the folder began with it by the same `restore.id`; from then on what the job
has left in another folder is undecided |

A checkpoint that is restored is one without anything pending.

| a driver over another folder aborts what was decided after it | no sink shows that checkpoint |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verification.simulation.decisions import Decision, Piece
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

    def holds(self, decision: Decision) -> bool:
        """Whether it has a checkpoint as pending, of whatever attempt."""
        mine = f"{decision.lineage}-{decision.checkpoint}"
        return any(name.rpartition("-")[0] == mine for name in self.pending)

    def is_shown(self, facts: Facts) -> bool:
        """Whether a sink shows such a checkpoint."""
        return any(
            self.is_behind(one) and any(xid in facts.visible for xid in one.xids)
            for one in (*facts.decided.values(), *facts.ahead.values())
        )


@dataclass
class SavedOnes:
    """The savepoints of a run.

    Attributes:
        by_path: each one that is whole, also by the path that it was moved to.
        durable: the pieces whose decision is durable in one.
        forks: the folders of other jobs that begin with a savepoint.
        given_up: the lost pieces that each of them begins without.
        rewinders: the folders in which a restore was started that rewinds.
        begun: the job's folder and the id of each lineage, and the path that it began with.
        restore_ids: the option `restore.id` that each lineage was begun with.
        roots: the folders in which a lineage has begun.
        older: the folders that were restored from a copy, or are gone.
        ancestors: the last checkpoint of each lineage that a lineage continues.
        rewinding: where a rewind goes back to, by the folder of a job that has begun it, and not
            the lineage after it.
        wanted: of each folder what was to be restored there.
        aside: the rows of pieces that a rewind has taken back, and not their proofs yet.
    """

    by_path: dict[str, Saved] = field(default_factory=dict)
    durable: set[str] = field(default_factory=set)
    forks: set[str] = field(default_factory=set)
    given_up: dict[str, set[str]] = field(default_factory=dict)
    rewinders: set[str] = field(default_factory=set)
    begun: dict[tuple[str, str], str] = field(default_factory=dict)
    rewinding: dict[str, str] = field(default_factory=dict)
    restore_ids: dict[str, str] = field(default_factory=dict)
    roots: set[str] = field(default_factory=set)
    older: set[str] = field(default_factory=set)
    ancestors: dict[str, Mapping[str, int]] = field(default_factory=dict)
    wanted: dict[str, list[Saved]] = field(default_factory=dict)
    aside: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def linked(self, facts: Facts, path: str, data: bytes) -> None:
        """A file of a savepoint has got its name."""
        where, _, name = path.rpartition("/")
        if name == MANIFEST:
            self._made(facts, where, json.loads(data.partition(b"\n")[2]))
        elif name == FINISHED:
            waiting = self._waiting(facts, where)
            waiting = [xid for xid in waiting if not self._is_another_now(facts, xid)]
            facts.holds(not waiting, f"I8: {where} is called finished, and {waiting} wait")

    def synced(self, facts: Facts, folder: str) -> None:
        """A folder was synced: a manifest in it is durable, with all decisions that it holds."""
        if folder in self.by_path:
            self.durable.update(self.held(facts, folder))

    def at(self, facts: Facts, path: str) -> Saved | None:
        """The savepoint at a path, or the checkpoint."""
        if (saved := self.by_path.get(path)) is not None:
            return saved
        body = f"{path}/_metadata"
        one = next((one for one in facts.known() if one.body == body), None)
        if one is None:
            return None
        ancestors = {**self.ancestors.get(one.lineage, {}), one.lineage: one.checkpoint}
        return Saved(one.root, one.lineage, one.checkpoint, ancestors, frozenset(), one.chunk)

    def begins(self, facts: Facts, root: str, lineage: Mapping[str, Any]) -> list[Decision]:
        """A lineage begins in a job's folder with what is at a path. Returns the decisions that it
        continues, and that were given up with a folder.
        """
        where, saved = lineage["restored_from"], self.at(facts, lineage["restored_from"])
        older = [
            path
            for (folder, name), path in self.begun.items()
            if folder == root and path and self.restore_ids[name] == lineage["restore_id"]
        ]
        again = [one for one in older if one == where or self.by_path.get(one, one) is saved]
        facts.holds(saved is None or not again, f"{where} is restored again, as {again}")
        self.begun[root, lineage["id"]] = where
        self.restore_ids[lineage["id"]] = lineage["restore_id"]
        self.roots.add(root)
        self.ancestors[lineage["id"]] = lineage["ancestors"]
        if root in self.forks:
            over = {*self.given_up.get(root, ()), *filter(facts.is_forgotten, facts.lost)}
            waiting = [
                one
                for one in self._waiting(facts, where)
                if one not in over and not self._is_another_now(facts, one)
            ]
            facts.holds(
                not waiting, f"H30: a fork of {where} begins, and {waiting} are not committed"
            )
            return []
        rewinds = root in self.rewinding
        self.rewinding.pop(root, None)
        if saved is None or facts.several_folders:
            return []
        for key, decision in list(facts.decided.items()):
            # an adoption, and what continues it, does not name what was given up whole
            is_given_up = not decision.xids and decision.committed and decision.chunk < saved.chunk
            if is_given_up or not saved.is_behind(decision):
                continue
            shown = [xid for xid in decision.xids if xid in facts.visible]
            knows = decision.root == root and root not in self.older
            is_done = not decision.xids or (rewinds and decision.committed)
            waits = knows and not is_done
            facts.holds(
                not waits and not shown,
                f"H28: {where} is restored, and checkpoint {decision.checkpoint} was decided after "
                f"it; sinks show {shown}",
            )
            facts.superseded.append(facts.decided.pop(key))
            facts.undone -= {*decision.xids}
        for of in [of for of, decision in facts.ahead.items() if saved.is_behind(decision)]:
            decision = facts.ahead.pop(of)
            shown = [xid for xid in decision.xids if xid in facts.visible]
            facts.holds(
                not shown, f"H28: {where} is restored, and {of[3]}, which is ahead, shows {shown}"
            )
            facts.superseded.append(decision)
            facts.undone -= {*decision.xids}
        found = self._revive(facts, lambda one: not saved.is_behind(one))
        for one in found:
            one.committed = True  # before the lineage begins, and no record says so
        return found

    def gives_up(
        self, facts: Facts, root: str, loss: Mapping[str, Any]
    ) -> dict[str, tuple[str, int]]:
        """A fork begins without lost pieces. The first job may still write them again, or have
        found them again by now. Returns the sink and the chunk of each.
        """
        names = {name for saved in self.by_path.values() for name in saved.pending}
        of = (loss["lineage"], loss["checkpoint"])
        mine = {
            xid: (one.sinks[xid], one.chunk)
            for one in facts.known()
            if (one.lineage, one.checkpoint) == of and one.body.split("/")[-2] in names
            for xid in one.xids
            for piece in [Piece.of(xid)]
            if f"{piece.subtask}.{piece.task_attempt}" in loss["pieces"]
            and one.sinks[xid] == loss["sink"]
        }
        for xid in mine.keys() - facts.visible.keys():
            is_gone = facts.is_gone(xid) or xid in facts.withdrawn  # by the first job
            facts.holds(is_gone, f"I8: {root} gives up {xid}, which was not lost")
        self.given_up.setdefault(root, set()).update(mine)
        return mine

    def folder_restored(self, facts: Facts, root: str, known: set[tuple[str, str, int]]) -> None:
        """A job's folder knows no more than these decisions, and these."""
        self.rewinding.pop(root, None)
        self.older.add(root)
        self._revive(facts, lambda one: (one.root, one.lineage, one.checkpoint) in known)
        lineages = {lineage for _, lineage, _ in known}
        for key in [(one, of) for one, of in self.begun if one == root and of not in lineages]:
            del self.begun[key]

    def is_too_old(self, facts: Facts, root: str, where: str) -> bool:
        """Whether something was decided after it, but for what continues it in a job's folder."""
        saved = self.at(facts, where)
        return saved is not None and any(
            saved.is_behind(decision) and self.begun.get((root, decision.lineage)) != where
            for decision in facts.known()
        )

    def is_taken_back(self, facts: Facts, where: str) -> bool:
        """Whether a rewind has taken back rows that it, or what it continues, has written."""
        saved = self.at(facts, where)
        return saved is not None and any(
            not facts.taken_back.isdisjoint(decision.xids) and not saved.is_behind(decision)
            for decision in facts.known()
        )

    def may_abort(self, facts: Facts, root: str, decision: Decision) -> bool:
        """Whether a driver over one folder may abort what was decided in another, or in a newer
        state of it.
        """
        shown = any(xid in facts.visible for xid in decision.xids)
        behind = any(saved.is_behind(decision) for saved in self.wanted.get(root, ()))
        knows = decision.root == root and root not in self.older
        if knows:  # in a restored target it may wait again, and a rewind does not commit it first
            return root in self.rewinders and behind and not facts.is_there(decision.body)
        return behind and (root in self.rewinders or not shown)

    def decides(self, facts: Facts, xid: str) -> Decision | None:
        """The decision on a piece that a folder knows nothing of, and that a savepoint or what is
        restored there has: it is decided again.
        """
        names = {name for saved in self.by_path.values() for name in saved.pending}
        wanted = self.wanted.get(facts.folder, ())

        def is_known(one: Decision) -> bool:
            continued = any(not saved.is_behind(one) for saved in wanted)
            return xid in one.xids and (continued or one.body.split("/")[-2] in names)

        return next(iter(self._revive(facts, is_known)), None)

    def _revive(self, facts: Facts, is_it: Callable[[Decision], bool]) -> list[Decision]:
        """Decisions that were given up with a folder are decided again."""
        found = []
        for one in reversed(facts.superseded):
            key = (one.root, one.lineage, one.checkpoint)
            if key not in facts.decided and is_it(one):
                facts.decided[key] = one
                found.append(one)
        facts.superseded = [one for one in facts.superseded if one not in found]
        return found

    def _waiting(self, facts: Facts, where: str) -> list[str]:
        """Those of them that have yet to become visible, and are not undone."""
        over = facts.visible.keys() | facts.withdrawn | facts.undone | facts.taken_back
        return [xid for xid in self.held(facts, where) if xid not in over]

    def _is_another_now(self, facts: Facts, xid: str) -> bool:
        """Whether an older copy of a folder, which does not know the checkpoint of a piece, went on
        and has committed another one under its number: a known limit (docs/loss.md).

        What had been decided was in no target, so nothing told it from an attempt that had died
        before its decision, and it was rolled back. Its records were read again. Once the proofs of
        that are folded, the mark of the lineage is all that is left, and covers both.
        """
        other = Decision.of_piece(facts.decided.values(), xid)
        if other is None or other.root not in self.older:
            return False
        return other.committed and xid not in other.xids

    def held(self, facts: Facts, where: str) -> list[str]:
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
            of = (lineage, number)
            elsewhere = (one for one in facts.known() if (one.lineage, one.checkpoint) == of)
            decision = next(elsewhere, None)
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
            if found.root == root and not found.committed and not saved.is_behind(found)
            for xid in found.xids
            if xid not in facts.visible and not saved.holds(found)
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
