"""What must hold, checked at the moment it could break. Knows the formats of the durable bytes, and no code of the product.

It watches the disk and the servers themselves: a file that gets its name, a branch that is prepared, committed or rolled
back. The first thing that is wrong stops the run.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.branches import Branch, Phase
from tests.simulation.disk import Disk, File, Folder
from tests.simulation.scheduler import Scheduler
from tests.simulation.server import Server

FORMAT_ID = 0x74777068


@dataclass(frozen=True)
class Piece:
    """Whose branch it is, read off its xid."""

    sink: str
    lineage: str
    checkpoint: int
    attempt: tuple[int, int]
    subtask: int
    task_attempt: int

    @classmethod
    def of(cls, xid: str) -> Piece:
        gtrid, bqual = (part.strip("'").split("-") for part in xid.split(",")[:2])
        attempt, sink, subtask, _, _ = bqual
        generation, counter = attempt.split(".")
        index, task_attempt = subtask.split(".")
        return cls(sink, gtrid[1], int(gtrid[2]), (int(generation), int(counter)), int(index), int(task_attempt))


@dataclass
class Decision:
    """A record DECIDED and the body it names."""

    path: str
    body: str
    lineage: str
    checkpoint: int
    attempt: tuple[int, int]
    chunk: int
    xids: tuple[str, ...]
    durable: bool = False
    committed: bool = False


@dataclass
class Oracle:
    """Watches one run.

    Attributes:
        scheduler: stopped at the first violation.
        disk: where the job's folders are.
        expected: the rows of a chunk of the input and a subtask.
        most_under_way: how many checkpoints of a lineage may be decided and not committed.
        decided: by lineage and number.
        lost: what somebody has rolled back by hand although it is decided.
        on_decided: hears of each decision.
        generation: the newest fence in each job's log, by its folder.
        records: how many records each log has got.
        restored: the checkpoints that lineages were begun from.
    """

    scheduler: Scheduler
    disk: Disk
    expected: Callable[[int, int], list[tuple[int, int]]]
    most_under_way: int = 1
    decided: dict[tuple[str, int], Decision] = field(default_factory=dict)
    generation: dict[str, int] = field(default_factory=dict)
    records: Counter[str] = field(default_factory=Counter)
    restored: set[str] = field(default_factory=set)
    servers: list[Server] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    on_decided: Callable[[Decision], None] = lambda decision: None
    closed: dict[str, tuple[int, int]] = field(default_factory=dict)
    visible: dict[str, Piece] = field(default_factory=dict)
    seen: set[Piece] = field(default_factory=set)

    def violated(self, what: str) -> None:
        """Something is wrong."""
        self.scheduler.stop(what)

    def holds(self, condition: bool, what: str) -> None:
        if not condition:
            self.violated(what)

    # -- the log -------------------------------------------------------------------------------------------------------

    def linked(self, path: str, data: bytes) -> None:
        """A file has got its final name."""
        root, kind, name = path.rsplit("/", 2)
        if kind != "log" or name != max(self._records(root)):
            return  # a record below others is at a place that was folded: nobody reads it
        header, _, payload = data.partition(b"\n")
        body = json.loads(payload)["record"]
        self.records[root] += 1
        match header.split(b" ")[1]:
            case b"FENCE":
                known = self.generation.get(root, 0)
                self.holds(body["generation"] > known, f"I7: fence {body['generation']} after {known}")
                self.generation[root] = body["generation"]
            case b"LINEAGE":
                self.restored.add(body["lineage"]["restored_from"])
            case b"DECIDED":
                self._decide(root, path, body["decision"])
            case b"COMMITTED":
                self._commit(body["lineage"], body["checkpoint"])
            case _:
                pass  # what it adds up to is checked in the end

    def synced(self, folder: str) -> None:
        """A folder was synced: the names in it are durable, if it is."""
        for decision in self.decided.values():
            if not decision.durable and decision.path.startswith(folder):
                decision.durable = self.disk.is_durable(decision.path)

    def power_was_cut(self) -> None:
        """What was decided and not durable may be gone; nobody may have acted on it."""
        for key, decision in list(self.decided.items()):
            if decision.durable:
                continue
            if self.disk.is_durable(decision.path):
                decision.durable = True
            else:
                del self.decided[key]
        for root in self.generation:
            self.generation[root] = self._newest_fence(root)

    def _decide(self, root: str, path: str, record: dict[str, Any]) -> None:
        attempt = (record["attempt"]["generation"], record["attempt"]["counter"])
        name = f"{record['lineage']}-{record['checkpoint']}-{attempt[0]}.{attempt[1]}"
        key = (record["lineage"], record["checkpoint"])
        self.holds(key not in self.decided, f"I2: {name} is decided a second time")
        self.holds(attempt[0] == self.generation.get(root), f"I7: {name} is decided after a newer fence")
        body_path = f"{root}/chk/{name}/_metadata"
        body = self._body(body_path, record["body_digest"])
        xids = tuple(
            f"'{piece['handle']['gtrid']}','{piece['handle']['bqual']}',{FORMAT_ID}"
            for pieces in body["committables"].values()
            for piece in pieces
        )
        for xid in xids:
            self.holds(self._is_prepared(xid), f"H14: {name} is decided, its branch {xid} is not prepared")
        chunk = json.loads(body["offsets"]["end"][0])["next"] - 1
        self.decided[key] = Decision(path, body_path, *key, attempt, chunk, xids)
        waiting = [found.checkpoint for found in self._before(self.decided[key]) if not found.committed]
        self.holds(len(waiting) < self.most_under_way, f"H48: {name} is decided, and {waiting} are not committed")
        self.on_decided(self.decided[key])

    def _body(self, path: str, digest: str) -> Any:
        try:
            file = self.disk.find(path)
        except FileNotFoundError:
            file = File()
        data = bytes(file.data) if isinstance(file, File) else b""
        self.holds(hashlib.sha256(data).hexdigest() == digest, f"I1: {path} is not the body that was decided")
        self.holds(self.disk.is_durable(path), f"I1: {path} is decided and not durable")
        return json.loads(data.partition(b"\n")[2] or b'{"committables": {}, "offsets": {"end": ["{\\"next\\": 0}"]}}')

    def _commit(self, lineage: str, checkpoint: int) -> None:
        decision = self.decided.get((lineage, checkpoint))
        if decision is None:
            return self.violated(f"COMMITTED({checkpoint}) without a decision")
        for xid in decision.xids:
            self.holds(xid in self.visible, f"I2: COMMITTED({checkpoint}), and {xid} is not")
        early = [found.checkpoint for found in self._before(decision) if not found.committed]
        self.holds(not early, f"I4: COMMITTED({checkpoint}) before that of {early}")
        decision.committed = True
        return None

    def _before(self, decision: Decision) -> list[Decision]:
        """Older decisions of its lineage."""
        own = [found for found in self.decided.values() if found.lineage == decision.lineage]
        return [found for found in own if found.checkpoint < decision.checkpoint]

    def _decision_of(self, xid: str) -> Decision | None:
        return next((found for found in self.decided.values() if xid in found.xids), None)

    def _newest_fence(self, root: str) -> int:
        newest = 0
        for _, data in sorted(self._records(root).items()):
            header, _, payload = data.partition(b"\n")
            if header.startswith(b"twophase/1 FENCE "):
                newest = json.loads(payload)["record"]["generation"]
            if header.startswith(b"twophase/1 SUBSUMED "):  # what is before it may be a latecomer's
                newest = json.loads(payload)["record"]["history"]["generation"]
        return newest

    def _records(self, root: str) -> dict[str, bytes]:
        """The log, without temporary names."""
        folder = self.disk.find(f"{root}/log")
        assert isinstance(folder, Folder)
        return {
            name: bytes(node.data)
            for name, node in folder.entries.items()
            if isinstance(node, File) and not name.startswith(".")
        }

    # -- the servers ---------------------------------------------------------------------------------------------------

    def started(self, branch: Branch) -> None:
        """XA START."""
        piece = Piece.of(branch.xid)
        self.holds(piece not in self.seen, f"I5: {branch.xid} is used a second time")
        self.seen.add(piece)

    def prepared(self, branch: Branch) -> None:
        """XA PREPARE."""
        piece = Piece.of(branch.xid)
        closed = self.closed.get(piece.sink, (0, 0))
        self.holds(piece.attempt >= closed, f"I7: {branch.xid} is prepared after its attempt was closed by {closed}")

    def commits(self, branch: Branch) -> None:
        """XA COMMIT is about to make rows visible."""
        piece = Piece.of(branch.xid)
        decision = self._decision_of(branch.xid)
        if decision is None:
            return self.violated(f"I1: {branch.xid} is committed and in no decision")
        self.holds(decision.durable, f"I1: {branch.xid} is committed before its decision is durable")
        ledger = [key for key, _ in branch.written("ledger")]
        proof = [(key[3], (key[4], key[5]), key[6], key[7]) for key in ledger if isinstance(key, tuple)]
        own = [(piece.checkpoint, piece.attempt, piece.subtask, piece.task_attempt)]
        self.holds(proof == own, f"I4: {branch.xid} is committed with the ledger rows {ledger}")
        rows = [row for (table, _), row in branch.changes if table != "ledger"]
        self.holds(
            sorted(rows) == self.expected(decision.chunk, piece.subtask), f"I3: {branch.xid} commits the rows {rows}"
        )
        self.visible[branch.xid] = piece
        return None

    def rolled_back(self, branch: Branch) -> None:
        """XA ROLLBACK."""
        if branch.phase is Phase.PREPARED:
            decided = any(branch.xid in decision.xids for decision in self.decided.values())
            self.holds(not decided, f"I2: {branch.xid} is decided and rolled back")

    def lost_its_way(self, branch: Branch) -> None:
        """XA COMMIT or XA ROLLBACK came too early, and did nothing."""
        self.violated(f"decision 0010: {branch.xid} was asked for before its session had let go of it")

    def _is_prepared(self, xid: str) -> bool:
        branches = [server.branches[xid] for server in self.servers if xid in server.branches]
        return [branch.phase for branch in branches] == [Phase.PREPARED]

    # -- what drivers believe ------------------------------------------------------------------------------------------

    def fenced(self, sink: str, attempt: tuple[int, int]) -> None:
        """A sink says that all attempts below this one are closed."""
        self.closed[sink] = max(attempt, self.closed.get(sink, attempt))

    def recovered(self, sinks: list[str], generation: int) -> None:
        """A driver says that it has finished what older ones left."""
        for server in self.servers:
            for branch in server.branches.values():
                piece = Piece.of(branch.xid)
                if branch.phase is Phase.PREPARED and piece.sink in sinks and piece.attempt[0] < generation:
                    self.violated(f"I3: {branch.xid} is left behind by the recovery of generation {generation}")

    def believes_committed(self, xid: str) -> None:
        """A sink says that a piece is visible."""
        self.holds(xid in self.visible, f"I4: {xid} is taken for committed and is not")
        decision = self._decision_of(xid)
        before = self._before(decision) if decision else []
        early = [other for found in before for other in found.xids if other not in self.visible]
        self.holds(not early, f"I4: {xid} is committed before {early}")
