"""What must hold, checked at the moment it could break.

It watches the disk and the servers themselves: a file that gets its name, a branch that is
prepared, committed or rolled back. The first thing that is wrong stops the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from verification.simulation.branches import Branch, Phase
from verification.simulation.decisions import Checkpoint, Decision, Piece
from verification.simulation.facts import Facts, xid_of
from verification.simulation.repaired import Repaired
from verification.simulation.saved import SavedOnes
from verification.simulation.scheduler import Process
from verification.simulation.server import Backup, Server


@dataclass
class Oracle(Facts):
    """Watches one run.

    Attributes:
        most_under_way: how many checkpoints of a lineage may be decided and not committed.
        on_decided: hears of each decision.
        on_repaired: hears of each repair: its action, and the pieces that are not to
            become visible any more.
        closed: the fence of each sink, below which every attempt is closed.
        seen: the pieces that were begun.
        repaired: what the repairs of operators add up to.
        saved: the savepoints.
        tables: of each piece that was visible.
        limit: a known limit that the run has met, which ends it: nothing is to be said of it.
    """

    most_under_way: int = 1
    on_decided: Callable[[Decision], None] = lambda decision: None
    on_repaired: Callable[[str, set[str]], None] = lambda action, withdrawn: None
    closed: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: set[Piece] = field(default_factory=set)
    repaired: Repaired = field(default_factory=Repaired)
    saved: SavedOnes = field(default_factory=SavedOnes)
    limit: str = ""
    tables: dict[str, set[str]] = field(default_factory=dict)
    _begun: dict[str, tuple[str, str]] = field(default_factory=dict)
    _writers: dict[str, str] = field(default_factory=dict)
    _shown: dict[Process, set[Checkpoint]] = field(default_factory=dict)
    _asked: dict[Process, int] = field(default_factory=dict)
    _decided_ahead: set[str] = field(default_factory=set)

    # -- the log -----------------------------------------------------------------------------------

    def linked(self, path: str, data: bytes) -> None:
        """A file has got its final name."""
        root, kind, name = path.rsplit("/", 2)
        self.saved.linked(self, path, data)
        if kind != "log" or name != max(self._records(root)):
            return  # a record below others is at a place that was folded: nobody reads it
        header, _, payload = data.partition(b"\n")
        body = json.loads(payload)["record"]
        self.records[root] += 1
        match header.split(b" ")[1]:
            case b"FENCE":
                known = self.generation.get(root, 0)
                self.holds(
                    body["generation"] > known, f"I7: fence {body['generation']} after {known}"
                )
                self._fence(root, body["generation"])
            case b"LINEAGE":
                lineage = body
                mine = self.fencers.get(root) is self._process()
                self.holds(mine, "I7: a lineage begins, whose driver has not taken the job over")
                self._end_ahead(root)
                if root not in self.saved.forks:
                    self.restored.add(lineage["restored_from"])
                self.repaired.decided_again(root, self.saved.begins(self, root, lineage))
                self._begun[path] = (root, lineage["id"])
            case b"DECIDED":
                self._decide(root, path, body)
            case b"SINK_DECIDED":
                self._decide_sink(root, path, body)
            case b"COMMITTED":
                self._commit(root, body["lineage"], body["checkpoint"])
            case b"REWINDING":
                self.saved.rewinding[root] = body["restored_from"]
            case b"REPAIRED":
                self._repair(root, path, body)
            case _:
                pass  # what it adds up to is checked in the end

    def _repair(self, root: str, path: str, body: dict[str, Any]) -> None:
        action = body["action"]
        if root in self.saved.forks:
            # the rest of what a backup has undone hides it from the first job, once it is committed
            hidden = {
                xid: one
                for xid, one in self.saved.gives_up(self, root, body).items()
                if xid in self.undone
            }
            self.repaired.given_up.update(hidden)
            self.withdrawn |= hidden.keys()
            self.undone -= hidden.keys()
            return None
        if action == "abandon-rewind":
            self.saved.rewinding.clear()
            for key in [one for one in self.ahead if one[0] == root and one[3] in body["again"]]:
                self.superseded.append(self.ahead.pop(key))
        elif action == "adopt-from-target" and body["lineage"] is not None:
            self.saved.begun[root, body["lineage"]["id"]] = ""
            self.saved.roots.add(root)
            self.saved.ancestors[body["lineage"]["id"]] = body["lineage"]["ancestors"]
        withdrawn = self.repaired.repair(self, root, path, body)
        if action == "abandon-rewind":
            self.repaired.forgets(self)
        return self.on_repaired(action, withdrawn)

    def synced(self, folder: str) -> None:
        """A folder was synced: the names in it are durable, if it is."""
        for decision in self.known():  # what was given up with a folder may be decided again
            if not decision.durable and decision.path.startswith(folder):
                decision.durable = self.disk.is_durable(decision.path)
        for path in [one for one in self._begun if self.disk.is_durable(one)]:
            del self._begun[path]
        self.saved.synced(self, folder)

    def power_was_cut(self) -> None:
        """Decisions that are not durable may be gone; nobody may have acted on them. So may the
        beginning of a lineage.
        """
        for path, lineage in self._begun.items():
            if not self.disk.is_durable(path):
                del self.saved.begun[lineage]
        self._begun.clear()
        for key, decision in list(self.decided.items()):
            if decision.durable:
                continue
            if self.disk.is_durable(decision.path):
                decision.durable = True
            else:
                del self.decided[key]
        for ahead, decision in list(self.ahead.items()):
            decision.durable = decision.durable or self.disk.is_durable(decision.path)
            if not decision.durable:
                del self.ahead[ahead]
        for root in self.generation:
            self.generation[root] = self.newest_fence(root)

    def _fence(self, root: str, generation: int) -> None:
        """A driver takes a generation that none of its sinks has seen. Over two folders, two
        may take one at once.
        """
        process, newest = self._process(), self.fencers.get(root)
        self.holds(
            process not in self.owners or newest is process,
            f"I7: {process.name} takes the job over again, from a driver that has overtaken it",
        )
        self.generation[root], self.fencers[root] = generation, process
        self.fences[process] = generation
        if process in self.abandoning:  # if it dies now, a driver goes on as after it
            self.repaired.forgets(self)
        seen = self._asked.get(process, 0)
        self.holds(generation > seen, f"I7: fence {generation}, and a sink has seen {seen}")
        others = [known for other, known in self.generation.items() if other != root]
        if self.several_folders and generation in others:
            self.limit = f"two drivers over two folders have taken generation {generation} at once"
            self.scheduler.stop(self.limit)

    def _decide(self, root: str, path: str, record: dict[str, Any]) -> None:
        attempt = (record["attempt"]["generation"], record["attempt"]["counter"])
        name = f"{record['lineage']}-{record['checkpoint']}-{attempt[0]}.{attempt[1]}"
        key = (root, record["lineage"], record["checkpoint"])
        self.holds(key not in self.decided, f"I2: {name} is decided a second time")
        self.holds(
            attempt[0] == self.generation.get(root), f"I7: {name} is decided after a newer fence"
        )
        body_path = f"{root}/chk/{name}/_metadata"
        body, sinks = self.read_body(body_path, record["body_digest"])
        ahead = self._replace_ahead(key, name, sinks)
        for xid in sinks.keys() - ahead:
            self.holds(
                self.was_prepared(xid), f"H14: {name} is decided, its branch {xid} is not prepared"
            )
        chunk = json.loads(body["offsets"]["end"][0])["next"] - 1
        self.decided[key] = Decision(
            path, body_path, *key[1:], attempt, chunk, tuple(sinks), sinks=sinks
        )
        if root in self.repaired.known:
            self.repaired.known[root].add(key)
        waiting = [
            found.checkpoint for found in self._before(self.decided[key]) if not found.committed
        ]
        self.holds(
            len(waiting) < self.most_under_way,
            f"H48: {name} is decided, and {waiting} are not committed",
        )
        self.on_decided(self.decided[key])

    def _decide_sink(self, root: str, path: str, record: dict[str, Any]) -> None:
        """A sink commits ahead of the others. The rows are those of the same chunk in each."""
        attempt = (record["attempt"]["generation"], record["attempt"]["counter"])
        key = (root, record["lineage"], record["checkpoint"], record["sink"])
        name = f"{key[2]} in {key[3]}"
        self.holds(key not in self.ahead, f"I2: {name} is decided a second time")
        self.holds(key[:3] not in self.decided, f"I2: {name} is decided after its checkpoint")
        self.holds(attempt[0] == self.generation.get(root), f"I7: {name} after a newer fence")
        xids = tuple(map(xid_of, record["pieces"]))
        for xid in xids:
            self.holds(self.was_prepared(xid), f"H14: {name} is decided, {xid} is not prepared")
        chunk = json.loads(record["end"][0])["next"] - 1
        no_body = f"{root}/chk/none/_metadata"
        sinks = dict.fromkeys(xids, key[3])
        self.ahead[key] = Decision(path, no_body, *key[1:3], attempt, chunk, xids, sinks=sinks)

    def _replace_ahead(
        self, key: tuple[str, str, int], name: str, listed: Mapping[str, str]
    ) -> set[str]:
        """The decision on a checkpoint lists what sinks that are ahead of it have; return that."""
        ahead: set[str] = set()
        for other in [one for one in self.ahead if one[:3] == key]:
            decision = self.ahead.pop(other)
            xids = {*decision.xids}
            self._decided_ahead |= xids if decision.durable else set()
            mine = {xid for xid, sink in listed.items() if sink == other[3]}
            self.holds(mine == xids, f"I2: {name} lists {mine} of {other[3]}, which has {xids}")
            ahead |= xids
        return ahead

    def _end_ahead(self, root: str) -> None:
        """A lineage begins: its checkpoints are not those that sinks are ahead in."""
        for key in [key for key in self.ahead if key[0] == root]:
            self.superseded.append(self.ahead.pop(key))

    def _commit(self, root: str, lineage: str, checkpoint: int) -> None:
        decision = self.decided.get((root, lineage, checkpoint))
        if decision is None:
            given_up = self._given_up_in_time(root, lineage, checkpoint)
            return self.holds(given_up, f"COMMITTED({checkpoint}) without a decision")
        for xid in decision.xids:
            self.holds(
                xid in self.visible or xid in self.undone or xid in self.taken_back,
                f"I2: COMMITTED({checkpoint}), and {xid} is not",
            )
        early = [found.checkpoint for found in self._before(decision) if not found.committed]
        self.holds(not early, f"I4: COMMITTED({checkpoint}) before that of {early}")
        decision.committed = True
        return None

    def _given_up_in_time(self, root: str, lineage: str, checkpoint: int) -> bool:
        """Whether a checkpoint was decided in a folder that the job has left since, and a command
        that had begun there before says that nothing of it will come any more.
        """
        found = [one for one in self.superseded if one.key == (root, lineage, checkpoint)]
        pieces = {xid for one in found for xid in one.xids}
        return bool(found) and self._is_overtaken() and pieces <= self.withdrawn

    def _adopts(self, xid: str) -> Decision | None:
        """The decision that an adoption without its log, or its body, takes a piece to be of: the
        decided attempt of the task was rolled back by hand, another one waits with the same rows,
        and no target tells them apart (0064). From then on it is the decided one.
        """
        if self._process() not in self.adopting:
            return None
        task = Piece.of(xid).of_task
        unlisted = [
            (key, one)
            for key, one in self.decided.items()
            if key[0] != self.folder or not self.is_there(one.body)
        ]
        for key, one in unlisted:
            for lost in [other for other in one.xids if other in self.lost]:
                if Piece.of(lost).of_task == task:
                    self.withdrawn.add(lost)
                    sinks = {**one.sinks, xid: one.sinks[lost]}
                    xids = tuple(xid if other == lost else other for other in one.xids)
                    self.superseded.append(one)
                    self.decided[key] = replace(one, xids=xids, sinks=sinks)
                    return self.decided[key]
        return None

    # -- the servers -------------------------------------------------------------------------------

    def started(self, branch: Branch) -> None:
        """XA START."""
        piece = Piece.of(branch.xid)
        self.holds(piece not in self.seen, f"I5: {branch.xid} is used a second time")
        self.seen.add(piece)
        self._writers[branch.xid] = self.folder

    def prepared(self, branch: Branch) -> None:
        """XA PREPARE."""
        piece = Piece.of(branch.xid)
        closed = self.closed.get(piece.sink, (0, 0))
        self.holds(
            piece.attempt >= closed,
            f"I7: {branch.xid} is prepared after its attempt was closed by {closed}",
        )

    def commits(self, branch: Branch) -> None:
        """XA COMMIT is about to make rows visible."""
        piece = Piece.of(branch.xid)
        self.repaired.comes_back(self, branch.xid)
        decision = self._decision_of(branch.xid)
        if decision is None and (decision := self.saved.decides(self, branch.xid)) is not None:
            self.repaired.decided_again(self.folder, [decision])
        decision = decision or self._adopts(branch.xid)
        if decision is None and self.repaired.is_older(self, branch.xid):
            self.limit = f"{branch.xid} comes back while an older driver stands in its commit"
            return self.scheduler.stop(self.limit)
        if decision is None and self.repaired.was_written_again(branch.xid):
            self.limit = f"{branch.xid} was written again, and comes back elsewhere"
            return self.scheduler.stop(self.limit)
        if decision is None:
            return self.violated(f"I1: {branch.xid} is committed and in no decision")
        durable = branch.xid in self.saved.durable | self._decided_ahead or any(
            found.durable for found in self.known() if branch.xid in found.xids
        )
        self.holds(durable, f"I1: {branch.xid} is committed before its decision is durable")
        given_up = self.repaired.has_given_up(self.folder, branch.xid)
        self.holds(not given_up, f"I1: {branch.xid} is committed, and was given up")
        ledger = [key for key, _ in branch.written("ledger")]
        proof = [
            (key[3], (key[4], key[5]), key[6], key[7]) for key in ledger if isinstance(key, tuple)
        ]
        own = [(piece.checkpoint, piece.attempt, piece.subtask, piece.task_attempt)]
        self.holds(proof == own, f"I4: {branch.xid} is committed with the ledger rows {ledger}")
        rows = [row for (table, _), row in branch.changes if table != "ledger"]
        self.holds(
            sorted(rows) == self.expected(decision.chunk, piece.subtask),
            f"I3: {branch.xid} commits the rows {rows}",
        )
        hidden = [
            xid
            for found in self._before(decision)
            for xid in found.xids
            if xid not in self.visible
            and xid not in self._gone_on_without()
            and Piece.of(xid).sink == piece.sink
            and not self._comes_again(xid, found)
        ]
        self._lacks_none({*hidden}, f"{branch.xid} is committed in a target")
        self.visible[branch.xid] = piece
        self.undone.discard(branch.xid)
        self.tables[branch.xid] = {table for (table, _), _ in branch.changes if table != "ledger"}
        return None

    def _comes_again(self, xid: str, decision: Decision) -> bool:
        """Whether a piece is prepared again in a target that was restored while its checkpoint was
        being committed there: the rest proves the checkpoint, and the next sweep, or the recovery
        when it has committed decided checkpoints, commits it again.
        """
        others = [one for one in decision.xids if Piece.of(one).sink == Piece.of(xid).sink]
        shown = any(one in self.visible for one in others)
        return xid in self.undone and self.is_prepared(xid) and shown

    def rolled_back(self, branch: Branch) -> None:
        """XA ROLLBACK."""
        if branch.phase is not Phase.PREPARED:
            return None
        self.aborted.add(self._process())
        xid, root = branch.xid, self.folder
        self.holds(root not in self.saved.forks, f"I2: a fork aborts {xid} of the first job")
        found = (*self.decided.values(), *self.ahead.values())
        passed = (root, xid) in self.repaired.passed
        roots = (root, *(saved.root for saved in self.saved.wanted.get(root, ())))
        given_up = passed or any(self.repaired.has_given_up_task(of, xid) for of in roots)
        mine = [one for one in found if xid in one.xids]
        may_abort = partial(self.saved.may_abort, self, root)
        deciders = {one.root for one in mine if not (given_up or may_abort(one))}
        was_decided = any(xid in one.xids for one in self.superseded)
        if ((mine or was_decided) and not deciders) or self._writers.get(xid, root) != root:
            self.taken.add(xid)
        if not self.several_folders or root in deciders:
            return self.holds(not deciders, f"I2: {xid} is decided and rolled back")
        piece = Piece.of(xid)
        shown = (piece.lineage, piece.checkpoint, piece.attempt) in self._shown.get(
            self._process(), ()
        )
        self.holds(
            not (deciders and shown),
            f"I2: {xid} is decided, a sink shows its checkpoint, and it is rolled back",
        )
        return None

    def _gone_on_without(self) -> set[str]:
        """Decided pieces that the folder of the running process need not have committed."""
        return self.withdrawn | self.saved.given_up.get(self.folder, set())

    def lost_its_way(self, branch: Branch) -> None:
        """XA COMMIT or XA ROLLBACK came too early, and did nothing."""
        self.violated(
            f"decision 0010: {branch.xid} was asked for before its session had let go of it"
        )

    # -- targets and folders that are not what they were -------------------------------------------

    def copied(self, source: str, target: str) -> None:
        """The folder of a job was copied, with all that is decided in it."""
        self.several_folders = True
        self.generation[target], self.records[target] = (
            self.newest_fence(target),
            self.records[source],
        )
        for (root, lineage, number), decision in list(self.decided.items()):
            if root == source:
                path, body = (
                    path.replace(source, target, 1) for path in (decision.path, decision.body)
                )
                self.decided[target, lineage, number] = replace(
                    decision, path=path, body=body, durable=True
                )

    def restore_backup(self, server: Server, backup: Backup) -> None:
        """Restore the data of a server from a backup, or replace it by another server's.

        A branch of the backup is the job's there too: proofs decide, not the server's id.
        """
        had, held = set(server.committed), set(server.branches)
        server.restore_backup(backup)
        has, holds = server.committed, server.branches.keys()
        self._undo(had - has)
        for xid in has - self.visible.keys():  # taken back since
            self.visible[xid] = Piece.of(xid)
            self.taken_back.discard(xid)
            self.saved.aside.pop(xid, None)
        self.gone = (self.gone | (had | held) - has) - holds
        self.closed.clear()  # with its fences

    def empty(self, server: Server, table: str) -> None:
        """A table was dropped and created again."""
        server.engine.tables[table] = {}
        emptied = {xid for xid in self.visible if table in self.tables[xid]}
        self._undo(emptied)
        self.emptied |= emptied

    def never_decided(self, lineage: str, number: int) -> None:
        """A checkpoint is deleted by hand."""
        found = [self.decided.pop(key) for key in [*self.decided] if key[1:] == (lineage, number)]
        found += [self.ahead.pop(key) for key in [*self.ahead] if key[1:3] == (lineage, number)]
        self.superseded += found
        self.repaired.never_decided(lineage, number)
        self.repaired.forgets(self)

    def _undo(self, xids: set[str]) -> None:
        self.changes += 1
        self.undone |= xids
        for xid in xids:
            self.visible.pop(xid, None)

    # -- what drivers believe ----------------------------------------------------------------------

    def fenced(self, sink: str, attempt: tuple[int, int]) -> None:
        """A sink says that all attempts below this one are closed."""
        self.closed[sink] = max(attempt, self.closed.get(sink, attempt))

    def takes_over(self, process: Process, generation: int) -> None:
        """A driver says that it has taken the job over: its fence is in the log."""
        self.holds(
            self.fence_of(process) == generation,
            f"I7: {process.name} takes the job over with generation {generation}, "
            f"and its newest fence is {self.fence_of(process)}",
        )
        self.owners.add(process)

    def asks(self, seen: int) -> None:
        """A driver asks a sink for its history, and hears of the generation that it has seen."""
        process = self._process()
        self._asked[process] = max(seen, self._asked.get(process, 0))

    def looks(self) -> None:
        """A driver looks for orphans: what any sink shows by now, it can know
        before it aborts them.
        """
        self._shown[self._process()] = {
            (piece.lineage, piece.checkpoint, piece.attempt) for piece in self.visible.values()
        }

    def recovered(self, sinks: list[str], generation: int, missing: set[str]) -> None:
        """A driver says that it has finished what older ones left.

        Args:
            sinks: what stands for them in an xid.
            generation: its own.
            missing: what its targets lacked when it began.
        """
        overlooked = missing & self.undone - self.withdrawn
        self._lacks_none(overlooked, f"generation {generation} goes on over a target")
        for server in self.servers:
            for branch in server.branches.values():
                piece = Piece.of(branch.xid)
                back = branch.xid in self.repaired.back  # at any time, also after the last look
                if (
                    branch.phase is Phase.PREPARED
                    and not back
                    and piece.sink in sinks
                    and piece.attempt[0] < generation
                ):
                    self.violated(
                        f"I3: {branch.xid} is left behind by the recovery "
                        f"of generation {generation}"
                    )

    def _lacks_none(self, overlooked: set[str], what: str) -> None:
        """The job goes on: its target lacks nothing that was decided."""
        if overlooked and all(map(self._is_a_part, overlooked)):
            self.limit = f"{sorted(overlooked)} are a part of what a restored target has"
            self.scheduler.stop(self.limit)
        else:
            self.holds(not overlooked, f"I8: {what} that lacks {sorted(overlooked)}")

    def _is_a_part(self, xid: str) -> bool:
        """Whether a piece was rolled back by hand in a target that was restored from a backup, and
        another piece of its checkpoint is there, which proves the checkpoint (docs/loss.md).
        """
        mine = replace(Piece.of(xid), subtask=0, task_attempt=0)
        others = [replace(one, subtask=0, task_attempt=0) for one in self.visible.values()]
        return xid in self.lost and mine in others

    def believes_committed(self, xid: str, missing: set[str]) -> None:
        """A sink says that a piece is visible.

        Args:
            xid: the piece.
            missing: what its target lacked when it was asked.
        """
        there = self.visible.keys() | (self.undone - missing) | self.emptied
        # By the mark of a driver over another folder, or before a rewind that a newer driver has
        # made since, or one over another folder is making: whoever acts on it is found at
        # COMMITTED, or behind the fence.
        rewinds = bool({*self.saved.rewinding} - {self.folder})
        before_a_rewind = xid in self.taken_back and (rewinds or self._is_overtaken())
        over = self.taken | self.withdrawn
        if xid in over or before_a_rewind or self.is_forgotten(xid):
            return
        self.holds(xid in there, f"I4: {xid} is taken for committed and is not")
        decision = self._decision_of(xid)
        before = self._before(decision) if decision else []
        lacking = {other for other in missing if Piece.of(other).sink != Piece.of(xid).sink}
        known = there | lacking | self._gone_on_without()
        early = [
            other
            for found in before
            for other in found.xids
            if other not in known and not self._comes_again(other, found)
        ]
        self.holds(not early, f"I4: {xid} is committed before {early}")
