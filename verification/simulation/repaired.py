"""What repairs change in what is expected, and what must be true of each when its record is there.

| record | what must be true | from then on | |---|---|---| | accepted loss | each piece was lost,
and none of them is visible | none of them becomes visible, nothing else is missing in the end | |
rewrite | the same; each new piece is prepared, and they have the rows of the lost ones | the new
ones are decided, the lost ones are not | | adoption | all pieces of what is adopted are visible,
nothing of the rest is | what is adopted is committed, the rest was never decided |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from verification.simulation.branches import Phase
from verification.simulation.decisions import Decision, Piece
from verification.simulation.facts import Facts

Key = tuple[str, str, int]
"""Of a decision: the job's folder, lineage and number."""


@dataclass
class Repaired:
    """What the repairs of a run add up to.

    Attributes:
        given_up: of each piece whose loss was accepted the name of its sink and its
            chunk of the input.
        back: withdrawn or lost pieces that somebody has restored.
        damaged: whether something was done to the job's folder.
        known: the decisions that a folder knew when it was restored from a copy.
        accepted: of each loss the folder whose log has it, and the pieces.
        backed_up: what it was when the folder was copied that may be restored.
        passed: the pieces that an adoption has passed over, with its folder: they may come back.
        since: of each withdrawn piece the folder whose log says so, and its generation then.
        again: of each piece that a rewrite has written the lost ones of that rewrite.
        tasks: the folder of each loss, and the tasks that wrote what is lost.
    """

    given_up: dict[str, tuple[str, int]] = field(default_factory=dict)
    back: set[str] = field(default_factory=set)
    damaged: bool = False
    known: dict[str, set[Key]] = field(default_factory=dict)
    accepted: list[tuple[str, set[str]]] = field(default_factory=list)
    backed_up: list[tuple[str, set[str]]] = field(default_factory=list)
    passed: set[tuple[str, str]] = field(default_factory=set)
    since: dict[str, tuple[str, int]] = field(default_factory=dict)
    again: dict[str, set[str]] = field(default_factory=dict)
    tasks: set[tuple[str, tuple[str, str, int, int]]] = field(default_factory=set)

    def repair(self, facts: Facts, root: str, path: str, repair: Mapping[str, Any]) -> set[str]:
        """A repair is in the log of a folder. Returns the pieces that are not to
        become visible any more.
        """
        match repair["action"]:
            case "accept-loss":
                return self._accept(facts, root, repair)
            case "rewrite":
                return self._rewrite(facts, root, path, repair)
            case "abandon-rewind":
                losses = [self._accept(facts, root, loss) for loss in repair["losses"]]
                return set().union(*losses)
            case _ if repair["lineage"] is None:  # the folder has only missed a driver
                self.forgets(facts)  # which may have taken back what an older copy does not know
                return set()
            case _:
                return self._adopt(facts, root, repair["lineage"]["ancestors"])

    def left(self, facts: Facts, root: str) -> None:
        """The job goes back from a folder where nothing has begun: what was given up there is
        not given up in the other one.
        """
        for lost in (lost for of, lost in self.accepted if of == root):
            facts.withdrawn -= lost
            for xid in lost:
                self.given_up.pop(xid, None)  # it may have been written again since
        self.accepted = [one for one in self.accepted if one[0] != root]
        self.tasks = {one for one in self.tasks if one[0] != root}

    def comes_back(self, facts: Facts, xid: str) -> None:
        """A piece is committed that another folder has given up: its rows are not missing."""
        if xid in self.given_up and not self.has_given_up(facts.folder, xid):
            facts.withdrawn.discard(xid)
            del self.given_up[xid]
            for key, one in facts.decided.items():
                if Decision.of_piece([one], xid):
                    facts.decided[key] = replace(one, xids=tuple({*one.xids, xid}))

    def decided_again(self, root: str, found: Iterable[Decision]) -> None:
        """Decisions that were given up with a folder are continued there: what its log, or the one
        that they are from, has given up of them stays so.
        """
        for one in found:
            for xid, name in one.sinks.items():
                if {(root, _task(xid)), (one.root, _task(xid))} & self.tasks:
                    self.given_up[xid] = (name, one.chunk)

    def was_written_again(self, xid: str) -> bool:
        """Whether a rewrite has written the rows of a lost piece."""
        return any(xid in old for old in self.again.values())

    def has_given_up(self, root: str, xid: str) -> bool:
        """Whether the log of a folder has the loss of a piece."""
        return any(of == root and xid in lost for of, lost in self.accepted)

    def has_given_up_task(self, root: str, xid: str) -> bool:
        """Whether the log of a folder has the loss of what a task wrote, in whatever attempt:
        another folder may have written it again meanwhile, as other tasks.
        """
        tasks = (_task(one) for one in (xid, *self.again.get(xid, ())))
        return any((root, task) in self.tasks for task in tasks)

    def is_older(self, facts: Facts, xid: str) -> bool:
        """Whether a driver has stood in its commit since before a piece was withdrawn: if that
        comes back, with a backup perhaps, nothing keeps it from it (docs/loss.md).
        """
        own, since = facts.own_fence(), self.since.get(xid)
        return since is not None and since[0] == facts.folder and 0 < own < since[1]

    def missing_rows(self, facts: Facts, sink: str) -> list[tuple[int, int]]:
        """The rows that a target lacks because they were given up, and that the job has not gone
        back behind since.
        """
        kept = {(one.lineage.replace("-", ""), one.checkpoint) for one in facts.decided.values()}
        given_up = [(xid, chunk) for xid, (name, chunk) in self.given_up.items() if name == sink]
        return [
            row
            for xid, chunk in given_up
            for piece in [Piece.of(xid)]
            if (piece.lineage, piece.checkpoint) in kept
            and not self._is_in_another_lineage(facts, piece, chunk)
            # an adoption has taken another try of the task for the decided one (0064)
            and not any(one.of_task == piece.of_task for one in facts.visible.values())
            and not any(xid in old and new in facts.visible for new, old in self.again.items())
            for row in facts.expected(chunk, piece.subtask)
        ]

    def _is_in_another_lineage(self, facts: Facts, piece: Piece, chunk: int) -> bool:
        """Whether the records of a piece were read again by another lineage, and are there."""
        others = [xid for one in facts.known() if one.chunk == chunk for xid in one.xids]
        shown = [Piece.of(xid) for xid in others if xid in facts.visible]
        mine = (piece.sink, piece.subtask)
        return any(
            (one.sink, one.subtask) == mine and one.lineage != piece.lineage for one in shown
        )

    def folder_restored(self, facts: Facts, root: str, known: Iterable[Key]) -> None:
        """A job's folder is an old copy, or gone."""
        self.damaged = True
        self.known[root] = {*known}
        kept = self.backed_up if self.known[root] else []
        self.accepted = [one for one in self.accepted if one[0] != root or one in kept]
        left = {(of, _task(xid)) for of, lost in self.accepted for xid in lost}
        self.tasks = {one for one in self.tasks if one[0] != root} | left
        facts.generation[root] = facts.newest_fence(root) if facts.is_there(f"{root}/log") else 0
        self.forgets(facts)

    def forgets(self, facts: Facts) -> None:
        """What an older folder does not know, and no target shows any more, was never decided."""
        for root, known in self.known.items():
            kept = {*known}
            newest_first = sorted(facts.decided.items(), key=lambda one: -one[1].chunk)
            for key, decision in newest_first:
                later = any(
                    facts.decided[one].chunk > decision.chunk for one in kept & facts.decided.keys()
                )
                is_shown = any(_is_shown(facts, xid) for xid in decision.xids)
                if root != key[0] or key in kept or later or is_shown:
                    kept.add(key)
                else:
                    self._drop(facts, key)

    def _accept(self, facts: Facts, root: str, repair: Mapping[str, Any]) -> set[str]:
        lineage, newest, sink = repair["lineage"], repair["checkpoint"], repair["sink"]
        known = [*facts.decided.values()]
        if (lineage, newest) not in {(one.lineage, one.checkpoint) for one in known}:
            # of what is restored, which this folder does not know
            of = (lineage, newest)
            left = [one for one in reversed(facts.superseded) if sink in one.sinks.values()]
            known += [one for one in left if (one.lineage, one.checkpoint) == of][:1]
        ahead = facts.ahead.get((root, lineage, newest, sink))
        if ahead is not None:
            known.append(ahead)
        lacked = {one["lineage"]: one["checkpoint"] for one in repair["lacks"]}
        before = {one["lineage"]: one["checkpoint"] for one in repair["before"]}
        found = [
            one
            for one in known
            if before.get(one.lineage, -1) < one.checkpoint <= lacked.get(one.lineage, -1)
        ]
        if not repair["emptied"]:
            found = [one for one in known if one.lineage == lineage]
        withdrawn: set[str] = set()
        for decision in found:
            mine = self._pieces_of(facts, decision, sink)
            if not repair["emptied"]:
                is_newest = decision.checkpoint == newest
                mine = {xid for xid in mine if is_newest and _subtask(xid) in repair["pieces"]}
                facts.holds(
                    not is_newest or {_subtask(xid) for xid in mine} == {*repair["pieces"]},
                    f"I8: {repair['pieces']} are given up, and not all of them were decided",
                )
            self.tasks |= {(root, _task(xid)) for xid in mine}
            # of what it had given up before a fork may have committed some since
            mine -= {one for one in mine if self.has_given_up(root, one) and _is_shown(facts, one)}
            # lost before, or written again elsewhere, which may be rolled back as well
            before_now = (mine & facts.withdrawn) - facts.visible.keys()
            self.given_up.update(dict.fromkeys(before_now, (sink, decision.chunk)))
            # what only a fork has given up is this job's to accept
            mine -= facts.withdrawn - ({*decision.xids} if decision.root == root else set())
            again = root in self.known and _is_written_again(facts, decision)
            if again or _is_written_again_elsewhere(facts, decision, root):
                mine = {xid for xid in mine if not _is_shown(facts, xid)}
            withdrawn |= self._withdraw(facts, decision, mine, root)
            self.given_up.update(dict.fromkeys(mine, (sink, decision.chunk)))
            self.accepted.append((root, mine | before_now))
        return withdrawn

    def _rewrite(self, facts: Facts, root: str, path: str, repair: Mapping[str, Any]) -> set[str]:
        record, sink = repair["decision"], repair["sink"]
        old = self._replaced(
            facts, facts.decided[root, record["lineage"], record["checkpoint"]], repair
        )
        mine = self._pieces_of(facts, old, sink)  # another folder may have given some of them up
        lost = {xid for xid in mine if _subtask(xid) in repair["pieces"]}
        for xid in lost:
            self.given_up.pop(xid, None)
        facts.withdrawn -= {*old.xids} - lost  # in this copy of the folder they are decided
        withdrawn = self._withdraw(facts, old, lost, root)
        attempt = (record["attempt"]["generation"], record["attempt"]["counter"])
        name = f"{record['lineage']}-{record['checkpoint']}-{attempt[0]}.{attempt[1]}"
        facts.holds(
            attempt[0] == facts.generation.get(root),
            f"I7: {name} is written again after a newer fence",
        )
        body = f"{root}/chk/{name}/_metadata"
        _, sinks = facts.read_body(body, record["body_digest"])
        new = sinks.keys() - old.xids
        self.again |= dict.fromkeys(new, lost)
        for xid in new:
            facts.holds(
                facts.was_prepared(xid),
                f"H14: {name} is written again, its branch {xid} is not prepared",
            )
        facts.holds(
            {*old.xids} - lost <= sinks.keys(), f"I2: {name} leaves out pieces that were not lost"
        )
        rows = [
            sorted(row for xid in found for row in facts.expected(old.chunk, Piece.of(xid).subtask))
            for found in (lost, new)
        ]
        facts.holds(rows[0] == rows[1], f"I8: {name} has the rows {rows[1]}, lost were {rows[0]}")
        facts.decided[root, old.lineage, old.checkpoint] = replace(
            old,
            path=path,
            body=body,
            attempt=attempt,
            xids=tuple(sinks),
            sinks=sinks,
            durable=False,
        )
        return withdrawn

    def _replaced(self, facts: Facts, decided: Decision, repair: Mapping[str, Any]) -> Decision:
        """The decision that a rewrite replaces: an older copy of the folder knows neither of others
        nor of what was given up since.
        """
        attempt = (repair["replaced"]["generation"], repair["replaced"]["counter"])
        known = (decided, *reversed(facts.superseded))
        same = [one for one in known if (one.key, one.attempt) == (decided.key, attempt)]
        if not same or decided.root not in self.known:
            return next(iter(same), decided)
        xids = dict.fromkeys(xid for one in same for xid in one.xids)
        left = tuple(xid for xid in xids if not self.has_given_up(decided.root, xid))
        sinks = {xid: name for one in same for xid, name in one.sinks.items()}
        return replace(same[0], xids=left, sinks=sinks)

    def _pieces_of(self, facts: Facts, decision: Decision, sink: str) -> set[str]:
        """The pieces of a checkpoint in a sink, with those that were withdrawn already: in a folder
        that knows nothing of it they are lost once more.
        """
        of = (decision.lineage, decision.checkpoint)
        same = [one for one in facts.superseded if (one.lineage, one.checkpoint) == of]
        return {
            xid
            for one in (decision, *same)
            for xid in one.xids
            if one.sinks.get(xid) == sink and (one is decision or xid in facts.withdrawn)
        }

    def _adopt(self, facts: Facts, root: str, ancestors: Mapping[str, int]) -> set[str]:
        dropped: set[str] = set()
        known = [*facts.decided.values()]
        adopted = [one for one in known if one.checkpoint <= ancestors.get(one.lineage, -1)]
        newest = max((one.chunk for one in adopted), default=-1)
        for key, decision in list(facts.decided.items()):
            if decision in adopted:
                waits = key[0] == root and not decision.committed
                there = facts.visible.keys() | facts.taken_back | facts.taken
                # nothing lists what somebody has rolled back of a checkpoint without a body
                over = there if facts.is_there(decision.body) else there | {*facts.lost}
                hidden = [xid for xid in decision.xids if waits and xid not in over]
                facts.holds(
                    not hidden,
                    f"I2: checkpoint {decision.checkpoint} is adopted, "
                    f"and {hidden} are not visible",
                )
                decision.committed = decision.committed or waits
                if key[0] != root or waits:
                    dropped |= self._pass_over(facts, decision, root)
            # of one without pieces everything was given up before, and what is adopted left it out
            elif {*decision.xids} - facts.withdrawn or (key[0] != root and decision.chunk > newest):
                shown = [xid for xid in decision.xids if _is_shown(facts, xid)]
                facts.holds(
                    not shown,
                    f"I2: checkpoint {decision.checkpoint} is not adopted, and {shown} are visible",
                )
                dropped |= {*decision.xids}
                self._drop(facts, key)
        return dropped

    def _pass_over(self, facts: Facts, decision: Decision, root: str) -> set[str]:
        """Whoever adopts a checkpoint without its log, or its body, misses no piece that was rolled
        back before, or taken back by a rewind: no target tells of it (docs/loss.md).
        """
        over = facts.taken_back | facts.taken | {*facts.lost}
        lost = (
            {xid for xid in decision.xids if xid in over} - facts.withdrawn - facts.visible.keys()
        )
        for xid in lost:
            self.given_up[xid] = (decision.sinks[xid], decision.chunk)
        self.passed |= {(root, xid) for xid in lost}
        return self._withdraw(facts, decision, lost, root)

    def _withdraw(self, facts: Facts, decision: Decision, lost: set[str], root: str) -> set[str]:
        """Pieces of a decision are not decided any more; if it was made in another folder, that
        knows nothing of it.
        """
        is_other = _is_written_again_elsewhere(facts, decision, root)
        for xid in lost:
            is_gone = is_other or facts.is_gone(xid)
            facts.holds(is_gone, f"I8: {xid} is given up, and it was not lost")
            facts.holds(not _is_shown(facts, xid), f"I8: {xid} is given up, and it is visible")
        facts.withdrawn |= lost
        self.since.update(dict.fromkeys(lost, (root, facts.generation.get(root, 0))))
        if lost and decision.root == root:
            key = decision.key
            facts.superseded.append(decision)
            left = tuple(xid for xid in decision.xids if xid not in lost)
            if key in facts.decided:
                facts.decided[key] = replace(decision, xids=left)
            # neither, if the job has left the folder meanwhile
            for of in {(*key, decision.sinks[xid]) for xid in lost} & facts.ahead.keys():
                facts.ahead[of] = replace(decision, xids=left)
            facts.undone -= lost
            facts.gone -= lost
        return lost

    def _drop(self, facts: Facts, key: Key) -> None:
        """It was never decided."""
        facts.superseded.append(facts.decided.pop(key))
        facts.undone -= {*facts.superseded[-1].xids}
        self.never_decided(*key[1:])

    def never_decided(self, lineage: str, number: int) -> None:
        """No target lacks what was given up of such a checkpoint: its records are read again."""
        of = (lineage.replace("-", ""), number)
        self.given_up = {
            xid: one
            for xid, one in self.given_up.items()
            if (Piece.of(xid).lineage, Piece.of(xid).checkpoint) != of
        }


def _is_written_again(facts: Facts, decision: Decision) -> bool:
    """Whether it is of a rewrite, of which an older copy of its folder knows nothing."""
    of = (decision.root, decision.lineage, decision.checkpoint)
    same = [one for one in facts.superseded if (one.root, one.lineage, one.checkpoint) == of]
    return any(one.attempt != decision.attempt for one in same)


def _is_written_again_elsewhere(facts: Facts, decision: Decision, root: str) -> bool:
    """Whether a folder, with the savepoint that it restores, lists pieces as lost that were written
    again in the folder of the decision: what is given up then is theirs, and no row (0064).
    """
    of = (decision.lineage, decision.checkpoint)
    return decision.root != root and any(
        (one.lineage, one.checkpoint) == of for one in facts.superseded
    )


def _is_shown(facts: Facts, xid: str) -> bool:
    """Whether a piece is visible, or on its way."""
    flying = [server.branches[xid].phase for server in facts.servers if xid in server.branches]
    return xid in facts.visible or Phase.COMMITTING in flying


def _task(xid: str) -> tuple[str, str, int, int]:
    piece = Piece.of(xid)
    return piece.sink, piece.lineage, piece.checkpoint, piece.subtask


def _subtask(xid: str) -> str:
    piece = Piece.of(xid)
    return f"{piece.subtask}.{piece.task_attempt}"
