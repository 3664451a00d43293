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
        withdrawn: pieces that may not become visible any more: given up, or written again.
        back: withdrawn or lost pieces that somebody has restored.
        damaged: whether something was done to the job's folder.
    """

    given_up: dict[str, tuple[str, int]] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)
    back: set[str] = field(default_factory=set)
    damaged: bool = False

    def repair(self, facts: Facts, root: str, path: str, repair: Mapping[str, Any]) -> set[str]:
        """A repair is in the log of a folder. Returns the pieces that are not to
        become visible any more.
        """
        match repair["action"]:
            case "accept-loss":
                return self._accept(facts, root, repair)
            case "rewrite":
                return self._rewrite(facts, root, path, repair)
            case _:
                return self._adopt(facts, root, repair["lineage"]["ancestors"])

    def missing_rows(self, facts: Facts, sink: str) -> list[tuple[int, int]]:
        """The rows that a target lacks because they were given up."""
        mine = [(xid, chunk) for xid, (name, chunk) in self.given_up.items() if name == sink]
        return [row for xid, chunk in mine for row in facts.expected(chunk, Piece.of(xid).subtask)]

    def folder_restored(self, facts: Facts, root: str, known: Iterable[Key]) -> None:
        """A job's folder is an old copy, or gone. What it does not know and no target shows
        was never decided.
        """
        self.damaged = True
        facts.generation[root] = facts.newest_fence(root) if _has_log(facts, root) else 0
        kept = {*known}
        for key, decision in sorted(
            facts.decided.items(), key=lambda entry: entry[1].chunk, reverse=True
        ):
            later = any(
                facts.decided[other].chunk > decision.chunk for other in kept & facts.decided.keys()
            )
            if (
                root != key[0]
                or key in kept
                or later
                or any(_is_shown(facts, xid) for xid in decision.xids)
            ):
                kept.add(key)
            else:
                self._drop(facts, key)

    def _accept(self, facts: Facts, root: str, repair: Mapping[str, Any]) -> set[str]:
        lineage, newest, sink = repair["lineage"], repair["checkpoint"], repair["sink"]
        known = [decision for key, decision in facts.decided.items() if key[0] == root]
        begin, end = (
            max((_end(known, one) for one in repair["before"]), default=-1),
            _end(known, repair),
        )
        # also of what the lineage continues
        found = [one for one in known if begin < one.chunk <= end]
        if not repair["emptied"]:
            found = [one for one in known if one.lineage == lineage]
        withdrawn: set[str] = set()
        for decision in found:
            mine = {xid for xid in decision.xids if decision.sinks[xid] == sink}
            if not repair["emptied"]:
                mine = {
                    xid
                    for xid in mine
                    if decision.checkpoint == newest and _subtask(xid) in repair["pieces"]
                }
                facts.holds(
                    decision.checkpoint != newest or len(mine) == len(repair["pieces"]),
                    f"I8: {repair['pieces']} are given up, and not all of them were decided",
                )
            withdrawn |= self._withdraw(facts, decision, mine)
            self.given_up.update(dict.fromkeys(mine, (sink, decision.chunk)))
        return withdrawn

    def _rewrite(self, facts: Facts, root: str, path: str, repair: Mapping[str, Any]) -> set[str]:
        record, sink = repair["decision"], repair["sink"]
        old = facts.decided[root, record["lineage"], record["checkpoint"]]
        lost = {
            xid for xid in old.xids if old.sinks[xid] == sink and _subtask(xid) in repair["pieces"]
        }
        withdrawn = self._withdraw(facts, old, lost)
        attempt = (record["attempt"]["generation"], record["attempt"]["counter"])
        name = f"{record['lineage']}-{record['checkpoint']}-{attempt[0]}.{attempt[1]}"
        facts.holds(
            attempt[0] == facts.generation.get(root),
            f"I7: {name} is written again after a newer fence",
        )
        body = f"{root}/chk/{name}/_metadata"
        _, sinks = facts.read_body(body, record["body_digest"])
        new = sinks.keys() - old.xids
        for xid in new:
            facts.holds(
                facts.is_prepared(xid),
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

    def _adopt(self, facts: Facts, root: str, ancestors: Mapping[str, int]) -> set[str]:
        dropped: set[str] = set()
        for key, decision in list(facts.decided.items()):
            if key[0] != root or decision.committed:
                continue
            if decision.checkpoint <= ancestors.get(decision.lineage, -1):
                hidden = [xid for xid in decision.xids if xid not in facts.visible]
                facts.holds(
                    not hidden,
                    f"I2: checkpoint {decision.checkpoint} is adopted, "
                    f"and {hidden} are not visible",
                )
                decision.committed = True
            else:
                shown = [xid for xid in decision.xids if _is_shown(facts, xid)]
                facts.holds(
                    not shown,
                    f"I2: checkpoint {decision.checkpoint} is not adopted, and {shown} are visible",
                )
                dropped |= {*decision.xids}
                self._drop(facts, key)
        return dropped

    def _withdraw(self, facts: Facts, decision: Decision, lost: set[str]) -> set[str]:
        """Pieces of a decision are not decided any more."""
        for xid in lost:
            gone = xid in facts.lost or xid in facts.undone or xid in facts.gone
            facts.holds(gone, f"I8: {xid} is given up, and it was not lost")
            facts.holds(not _is_shown(facts, xid), f"I8: {xid} is given up, and it is visible")
        if lost:
            key = (decision.root, decision.lineage, decision.checkpoint)
            facts.superseded.append(decision)
            left = tuple(xid for xid in decision.xids if xid not in lost)
            facts.decided[key] = replace(decision, xids=left)
            facts.undone -= lost
            facts.gone -= lost
            self.withdrawn |= lost
        return lost

    def _drop(self, facts: Facts, key: Key) -> None:
        facts.superseded.append(facts.decided.pop(key))


def _has_log(facts: Facts, root: str) -> bool:
    try:
        facts.disk.find(f"{root}/log")
    except FileNotFoundError:
        return False
    return True


def _end(known: Iterable[Decision], newest: Mapping[str, Any]) -> int:
    """The last chunk of the input that is in a lineage up to a checkpoint."""
    mine = [
        one
        for one in known
        if one.lineage == newest["lineage"] and one.checkpoint <= newest["checkpoint"]
    ]
    return max((one.chunk for one in mine), default=-1)


def _is_shown(facts: Facts, xid: str) -> bool:
    """Whether a piece is visible, or on its way."""
    flying = [server.branches[xid].phase for server in facts.servers if xid in server.branches]
    return xid in facts.visible or Phase.COMMITTING in flying


def _subtask(xid: str) -> str:
    piece = Piece.of(xid)
    return f"{piece.subtask}.{piece.task_attempt}"
