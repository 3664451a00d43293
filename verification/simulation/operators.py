"""An operator who wants something else at any moment, and is led on by what a refusal says.

    wishes     go on; restore a savepoint or a checkpoint, with or without a rewind, in the job's
               folder or an empty one; make, finish, carry, delete a savepoint; stop with one; let
               another job begin with one, of which a piece may be lost; any repair, asked for or
               not; let something stand in the way of a rewind
    ways       when the job stops by name, or a command is refused: what the error says to do next,
               one of it at random

Drivers may live meanwhile, commands die or stand still, and the next wish may come before the last
one is fulfilled. When nothing goes wrong any more the operator follows what is said until the job
runs, which has to come soon: no refusal is a dead end. Then the job is stopped, saved, moved and
restored once more, and exact but for what a command has said to give up.

Nobody goes back to a folder when a lineage has begun in another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from twophase.errors import (
    ConfigError,
    LostCommittableError,
    RestoreRefusedError,
    TwoPhaseError,
)
from verification.simulation.commands import Shell
from verification.simulation.decisions import Piece
from verification.simulation.disk import File, Folder, Node
from verification.simulation.ending import ACCEPT, FORK, Command
from verification.simulation.options import Mishap
from verification.simulation.repairs import ABANDON, ADOPT, REWRITE
from verification.simulation.rewinding import delete_checkpoint
from verification.simulation.running import Running
from verification.simulation.saved import MANIFEST, newest_of
from verification.simulation.savepoints import DISPOSE, FINISH, MAKE

if TYPE_CHECKING:
    from verification.simulation.drivers import Drivers
    from verification.simulation.world import World

Ways = dict[str, Callable[[], object]]

_LOSS = re.compile(
    rf"{ACCEPT} JOB.yaml --checkpoint (\d+) --sink (\S+)"
    r"(?: --restore ([^\s;]+))?(?: --sink-ahead (\w+))?"
)
_FINISH = re.compile(rf"savepoint {FINISH} \S+ (/[^\s;]+)")
_CHECKPOINT = re.compile(r"(/\S+/chk/[^\s.]+\.\d+)")
_NAMED = re.compile(r"restore\.path=(/[^\s,`]+)")
_NEWEST = re.compile("from (the|its) newest checkpoint")
_HALF = re.compile(r"checkpoint (\d+) of lineage (\S+) (?:is committed|as decided) in")
_REFUSE, _REWIND = "refuse", "rewind"
_MOST_REACTIONS, _MOST_WAYS, _OLDER, _ABANDONS = 8, 30, 4, 3
_HEEDS, _PATIENT, _CHANGES_MIND, _REPEATS, _STARTS_BESIDE = 0.75, 0.7, 0.8, 0.6, 0.15
_ELSEWHERE, _SAVES_FIRST, _MISHAPS = 0.4, 0.5, 0.8
_PLACES = {
    _REFUSE: (("S05", 3), ("S06", 1), ("S07", 1), ("C18", 1), ("C22", 1)),
    _REWIND: (("S11", 1), ("S12", 2), ("S13", 1), ("twophase_rewind", 3), ("twophase_rewind", 9)),
}
_AMID_A_REWIND = ("wish: go on", "wish: obstacle", "wish: restore", "wish: an older one 0")
_PAUSES_S = (0.0, 0.0, 0.0, 20.0)
"""A driver is killed, or stands still until another one is there."""


class Operator:
    """See the module.

    Args:
        world: where.
        drivers: those of the job.
        shell: runs commands.
        calm_down: lets nothing go wrong any more.
    """

    def __init__(
        self, world: World, drivers: Drivers, shell: Shell, calm_down: Callable[[], None]
    ) -> None:
        self._world = world
        self._oracle = world.oracle
        self._drivers = drivers
        self._shell = shell
        self._calm_down = calm_down
        self._random = Random(f"operator {world.options.seed}")
        self._left = self._rewound = ""
        self._made = self._moves = self._reactions = 0
        self._is_too_old = False
        self._tried: Counter[str] = Counter()

    def work(self) -> None:
        """The storm, with wishes in it; then the calm."""
        random, last = self._random, self._world.options.checkpoints - 1
        count = random.choice((1, 2, 3, 3, 4))
        for moment in sorted(random.randint(1, last - 1) for _ in range(count)):
            self._until(moment)
            if not self._made and random.random() < _SAVES_FIRST:
                self._do({"wish: save": self._save, "wish: stop with a savepoint": self._stop})
            self._do(self._wishes())
        self._until(last)
        self._calm_down()
        self._lead_out(last)
        self._end()

    def recorded(self, withdrawn: set[str]) -> None:
        """A repair is recorded: there is less to be led out of."""
        if withdrawn:
            self._tried.clear()

    # -- the storm ---------------------------------------------------------------------------------

    def _until(self, chunks: int) -> None:
        """Let drivers work until so many chunks are decided."""

        def reached() -> bool:
            return chunks <= 1 + max(
                (one.chunk for one in self._oracle.decided.values()), default=-1
            )

        while not reached() and self._reactions < _MOST_REACTIONS:
            self._drivers.storm(reached)
            self._react()

    def _react(self) -> None:
        """If the job has stopped by name, do what the error says, or something else."""
        error = self._stopped()
        if error is None:
            return
        self._reactions += 1
        ways = self._ways(error) if self._random.random() < _HEEDS else {}
        self._do(ways or self._wishes())

    def _stopped(self) -> Exception | None:
        drivers = self._drivers
        if not drivers.is_stopped():
            return None
        driver = drivers.newest_stopped()
        drivers.settled = [one for one in drivers.all if one.process.dead]
        if self._is_too_old and isinstance(driver.error, RestoreRefusedError | ConfigError):
            self._world.happens("refused: too old")
            self._oracle.holds(
                not self._oracle.fence_of(driver.process),
                f"H28: {driver.process.name} has taken the job over, and is refused then: "
                f"{driver.error}",
            )
        self._is_too_old = False
        return driver.error

    def _do(self, ways: Ways) -> None:
        """Do one of them, of those that were tried least."""
        fewest = min(self._tried[label] for label in ways)
        label = self._random.choice([one for one in ways if self._tried[one] == fewest])
        self._tried[label] += 1
        self._world.happens(label)
        ways[label]()

    def _try(self) -> None:
        """Let a driver be started so, and mostly see what becomes of it."""
        drivers, before = self._drivers, len(self._drivers.all)
        if not self._world.faults.calm and self._random.random() < _PATIENT:
            drivers.storm(
                lambda: (
                    len(drivers.all) > before
                    and (drivers.is_restored() or drivers.all[-1].process.dead)
                )
            )
            amid = self._oracle.saved.rewinding and self._reactions < _MOST_REACTIONS
            if amid and self._random.random() < _CHANGES_MIND:
                self._reactions += 1
                self._do(self._wishes())

    # -- wishes ------------------------------------------------------------------------------------

    def _wishes(self) -> Ways:
        wishes: Ways = {
            "wish: go on": self._go_on,
            "wish: save": self._save,
            "wish: stop with a savepoint": self._stop,
            "wish: repair": self._repair,
            "wish: obstacle": self._obstruct,
            "wish: fork what waits": self._fork_what_waits,
        }
        if paths := self._paths():
            path = self._random.choice(paths)
            wishes["wish: restore"] = partial(self._restore_somehow, path)
        if saved := [path for path in paths if path in self._oracle.saved.by_path]:
            path = self._random.choice(saved)
            wishes |= {
                "wish: finish": partial(self._run, Command(FINISH, self._folder, path)),
                "wish: fork": partial(self._fork, saved),
                "wish: carry": partial(self._carry, path),
                "wish: delete": partial(self._remove, path),
                "wish: restore a savepoint": partial(self._restore_somehow, path),
            }
        older = [path for path in paths if self._is_older(path)]
        for number, path in enumerate((older * _OLDER)[:_OLDER]):
            policy = self._random.choice((_REWIND, _REWIND, _REFUSE))
            elsewhere = self._random.random() < _ELSEWHERE
            wish = partial(self._restore, path, policy, elsewhere=elsewhere)
            wishes[f"wish: an older one {number}"] = wish
        if self._oracle.saved.rewinding:
            wishes = {label: wish for label, wish in wishes.items() if label in _AMID_A_REWIND}
            for number in range(_ABANDONS):
                wishes[f"wish: abandon {number}"] = lambda: self._run(self._abandon())
        self._tried.clear()
        return wishes

    def _paths(self) -> list[str]:
        """What could be restored: savepoints and checkpoints."""
        saved = [
            path
            for path in self._oracle.saved.by_path
            if self._oracle.is_there(f"{path}/{MANIFEST}")
        ]
        return saved + [
            one.body.removesuffix("/_metadata")
            for one in self._oracle.decided.values()
            if self._oracle.is_there(one.body)
        ]

    def _is_older(self, path: str) -> bool:
        """Whether a sink shows more than what is at a path."""
        saved = self._oracle.saved.at(self._oracle, path)
        return saved is not None and saved.is_shown(self._oracle)

    @property
    def _folder(self) -> str:
        return self._drivers.folder

    def _may_go_back(self) -> bool:
        """Whether the job has left a folder, and begun no lineage in another."""
        return bool(self._left) and self._folder not in self._oracle.saved.roots

    def _go_on(self) -> None:
        """Start the job as it is, in the folder that it has begun in."""
        drivers = self._drivers
        drivers.restore(None)
        self._world.sink_ahead, self._world.reads_other_sources = _REFUSE, False
        if self._may_go_back():
            drivers.end_all()
            self._oracle.repaired.left(self._oracle, drivers.folder)
            drivers.folder, self._left = self._left, ""
        self._try()

    def _restore_somehow(self, path: str) -> None:
        random = self._random
        self._world.reads_other_sources = random.random() < 0.2
        policy = random.choice((_REFUSE, _REFUSE, _REWIND))
        elsewhere = random.random() < _ELSEWHERE
        if elsewhere and path in self._oracle.saved.by_path and random.random() < 0.5:
            path = self._carry(path)
        self._restore(path, policy, elsewhere=elsewhere)

    def _restore(self, path: str, policy: str, *, elsewhere: bool, again: bool = False) -> None:
        """Start the job with `restore.path`, and with a new `restore.id` if it is done again."""
        drivers, oracle = self._drivers, self._oracle
        self._world.restore_id += "again" if again else ""
        saved = oracle.saved.at(oracle, path)
        self._is_too_old = policy == _REFUSE and self._is_older(path)
        if drivers.folder in oracle.saved.roots:
            self._left = ""
        if elsewhere and not self._left:
            drivers.end_all()
            self._moves += 1
            self._left, drivers.folder = drivers.folder, f"/data/restored{self._moves}"
        elif self._random.random() < 0.5:
            drivers.end()
        else:
            drivers.rival()
            self._is_too_old = False
        if saved is not None:
            oracle.saved.wanted.setdefault(drivers.folder, []).append(saved)
        if policy == _REWIND:
            oracle.saved.rewinders.add(drivers.folder)
            self._rewound = path
        self._world.sink_ahead = policy
        drivers.restore(path)
        if self._random.random() < _MISHAPS:
            place, count = self._random.choice(_PLACES[policy])
            count, pause_s = self._random.randint(1, count), self._random.choice(_PAUSES_S)
            drivers.arm_next(Mishap(place, count, pause_s))
        self._try()
        if path in oracle.restored:
            where = "elsewhere" if elsewhere else "here"
            others = " by other sources" if self._world.reads_other_sources else ""
            self._world.happens(f"restored: {where}{others}")

    # -- savepoints --------------------------------------------------------------------------------

    def _save(self) -> None:
        committed_only = self._random.random() < 0.3
        if not committed_only and self._random.random() < 0.6:
            self._drivers.end()
        running = self._run(
            Command(MAKE, self._folder, self._path(), committed_only=committed_only)
        )
        path = running.command.path
        if self._oracle.is_there(f"{path}/{MANIFEST}"):
            if running.alone and not committed_only:
                self._is_newest(path)
            return
        self._oracle.holds(not running.done, f"I8: {path} was said to be made, and it is not there")
        if self._oracle.is_there(f"{path}/_begun"):
            self._run(Command(DISPOSE, self._folder, path))

    def _path(self) -> str:
        self._made += 1
        return f"/data/saved{self._made}"

    def _is_newest(self, path: str) -> None:
        """One of a job that has stopped is of its newest decided checkpoint."""
        saved, newest = self._oracle.saved.by_path[path], newest_of(self._oracle, self._folder)
        if newest is not None and not self._oracle.repaired.damaged:
            self._oracle.holds(
                newest.chunk == saved.chunk,
                f"I2: {path} is of chunk {saved.chunk}, the newest decided is {newest.chunk}",
            )

    def _stop(self) -> None:
        living = [one for one in self._drivers.living() if not one.stopping]
        if not living:
            return
        path, alone = self._path(), len(self._drivers.living()) == 1
        living[0].stop_with_savepoint(path)
        self._world.scheduler.wait_until(lambda: living[0].process.dead, None)
        if alone and self._oracle.is_there(f"{path}/{MANIFEST}"):
            self._is_newest(path)

    def _fork(self, paths: list[str]) -> None:
        """Let another job begin with a savepoint; with one that waits for its commit if there is
        one, of which somebody has rolled back a piece by hand.
        """
        path = next(filter(self._loses_a_piece, paths), self._random.choice(paths))
        folder = path.replace("saved", "fork")
        self._oracle.saved.forks.add(folder)
        command = Command(FORK, folder, path)
        running = self._run(command)
        if isinstance(running.error, LostCommittableError):
            running = self._run(command)
        if running.done:
            lacks = " without what is lost" if folder in self._oracle.saved.given_up else ""
            self._world.happens(f"forked{lacks}")

    def _fork_what_waits(self) -> None:
        """The job dies when it has decided something; another begins with what is saved then."""
        drivers, before = self._drivers, len(self._drivers.all)
        drivers.end()
        drivers.arm_next(Mishap("C11", 1, 0.0))
        drivers.storm(lambda: len(drivers.all) > before and drivers.all[-1].process.dead)
        path = self._run(Command(MAKE, self._folder, self._path())).command.path
        if path in self._oracle.saved.by_path:
            self._fork([path])

    def _loses_a_piece(self, path: str) -> bool:
        for server in self._world.servers:
            for xid in self._oracle.saved.held(self._oracle, path):
                if server.resolve(xid, commits=False):
                    self._oracle.lost.append(xid)
                    return True
        return False

    def _carry(self, path: str) -> str:
        """Carry a savepoint elsewhere, or copy it; return where it is then."""
        target = f"{path}-moved"
        self._world.disk.copy(path, target)
        self._oracle.saved.by_path[target] = self._oracle.saved.by_path[path]
        if self._random.random() < 0.5:
            self._remove(path)
        return target

    def _remove(self, path: str) -> None:
        """Delete a savepoint, at once, while nobody reads it."""
        if path == self._drivers.restore_path:
            self._drivers.end()
        parent, name = self._world.disk.folder_of(path)
        parent.put(name, None)
        self._world.disk.sync(parent)

    # -- repairs -----------------------------------------------------------------------------------

    def _repair(self) -> None:
        """Any repair, asked for or not."""
        known = [(one, xid) for one in self._oracle.decided.values() for xid in one.xids]
        commands = [Command(ADOPT, self._folder), self._abandon()]
        if known:
            decision, xid = self._random.choice(known)
            of = (decision.checkpoint, decision.sinks[xid])
            commands += [Command(verb, self._folder, "", *of) for verb in (ACCEPT, REWRITE)]
        self._run(self._random.choice(commands))

    def _abandon(self) -> Command:
        elsewhere = sorted(self._oracle.saved.rewinding.keys() - {self._folder})
        begun_in = "" if self._folder in self._oracle.saved.rewinding else elsewhere[-1:]
        return Command(ABANDON, self._folder, begun_in="".join(begun_in))

    def _obstruct(self) -> None:
        """Something, a foreign key perhaps, keeps a sink from taking rows back; or not any more."""
        self._world.obstructed ^= {self._random.choice(list(self._world.targets))}

    def _run(self, command: Command) -> Running:
        """Run a command, again while it dies, until it comes to its end or refuses; then what its
        refusal says.
        """
        random, calm = self._random, self._world.faults.calm
        while True:
            if not calm and random.random() < _STARTS_BESIDE:
                self._drivers.rival()
            running = self._shell.run(command)
            is_over = running.done or running.error is not None or command.verb == MAKE
            if is_over or random.random() >= _REPEATS:
                break
        if isinstance(running.error, TwoPhaseError) and random.random() < _HEEDS:
            ways = self._ways(running.error, command)
            if ways:
                self._do(ways)
        return running

    def _end_superseded(self) -> None:
        """End prepared pieces by hand that lost to another attempt of their task."""
        decided = {xid for one in self._oracle.known() for xid in one.xids}
        tasks = {Piece.of(xid).of_task for xid in decided}
        for server in self._world.servers:
            for xid in [*server.branches]:
                if xid not in decided and Piece.of(xid).of_task in tasks:
                    server.resolve(xid, commits=False)

    def _end_prepared(self) -> None:
        """End all prepared pieces by hand, as docs/by-hand.md says: those of a decided checkpoint
        are committed, the oldest first, unless one of an older one is lost, or the decision may be.
        """
        self._drivers.end_all()
        oracle = self._oracle
        prepared = {xid: server for server in self._world.servers for xid in server.branches}
        known = (*oracle.decided.values(), *oracle.ahead.values())
        decided = sorted(known, key=lambda one: one.chunk)
        lacking = False
        for one in decided:
            waiting = {xid: prepared.pop(xid) for xid in one.xids if xid in prepared}
            for xid, server in waiting.items() if one.durable and not lacking else ():
                server.resolve(xid, commits=True)
            lacking = lacking or not {*one.xids} <= oracle.visible.keys()
        saved = {xid for one in oracle.superseded for xid in one.xids}
        for xid, server in prepared.items():
            if server.resolve(xid, commits=False) and xid in saved:
                oracle.lost.append(xid)

    # -- ways --------------------------------------------------------------------------------------

    def _ways(self, error: Exception, refused: Command | None = None) -> Ways:
        """What an error says to do next; a command that it has refused is run again after what is
        done by hand only.
        """
        says, ways = str(getattr(error, "remedy", "")), Ways()
        for one in self._commands(says, refused):
            if one != refused:
                ways[f"way: {one.verb}"] = partial(self._run, one)
        if ABANDON in says and f"--begun-in {self._folder}" in says and self._may_go_back():
            ways["way: abandon and go back"] = self._abandon_and_go_back
        by_hand = self._by_hand(error, says)
        if refused is not None:
            by_hand = {label: partial(self._then, act, refused) for label, act in by_hand.items()}
        return ways | self._starts(error, says) | by_hand

    def _then(self, act: Callable[[], object], command: Command) -> None:
        act()
        self._run(command)

    def _abandon_and_go_back(self) -> None:
        self._run(Command(ABANDON, self._left, begun_in=self._folder))
        self._go_on()

    def _commands(self, says: str, refused: Command | None) -> Iterator[Command]:
        folder = self._folder
        if found := _LOSS.search(says):
            named = replace(refused or Command("", folder), checkpoint=int(found[1]), sink=found[2])
            path, policy = found[3] or "", found[4] or _REFUSE
            yield replace(named, verb=ACCEPT, path=path, sink_ahead=policy)
            if refused is None and REWRITE in says:
                yield replace(named, verb=REWRITE)
        if found := _FINISH.search(says):
            yield Command(FINISH, folder, found[1])
        if ADOPT in says:
            yield Command(ADOPT, folder)
        has_begun = "--begun-in" not in says or bool(self._oracle.saved.rewinding)
        if ABANDON in says and f"--begun-in {folder}" not in says and has_begun:
            yield self._abandon()

    def _starts(self, error: Exception, says: str) -> Ways:
        """The ways that let the job be started, or start it otherwise."""
        path, ways = self._drivers.restore_path, Ways()
        begun = [*self._oracle.saved.rewinding.values()] or [self._rewound]
        if found := _NAMED.search(says):
            self._oracle.holds(
                self._oracle.saved.at(self._oracle, found[1]) is not None,
                f"nothing was ever at {found[1]}, and it is to be restored: {error}",
            )
            again = "a new `restore.id`" in says
            ways["way: finish"] = partial(
                self._restore, found[1], _REWIND, elsewhere=False, again=again
            )
        elif "the same restore.path" in says and begun[-1]:
            ways["way: finish"] = partial(self._restore, begun[-1], _REWIND, elsewhere=False)
        elif path and _REWIND in says:
            ways["way: rewind"] = partial(self._restore, path, _REWIND, elsewhere=False)
        if not _NAMED.search(says) and (found := _CHECKPOINT.search(says)):
            ways["way: restore"] = partial(self._restore, found[1], _REFUSE, elsewhere=False)
        if _NEWEST.search(says) and (newest := newest_of(self._oracle, self._folder)):
            newest_path = newest.body.removesuffix("/_metadata")
            ways["way: newest"] = partial(self._restore, newest_path, _REFUSE, elsewhere=False)
        if "without restore.path" in says or (path and isinstance(error, ConfigError)):
            ways["way: go on"] = self._go_on
        goes_back = "restore the job's folder" in says or "own folder" in says
        if goes_back and self._may_go_back():
            ways["way: the job's folder"] = self._go_on
        if "start the job again" in says or "start again" in says:
            ways["way: again"] = self._try
        return ways

    def _by_hand(self, error: Exception, says: str) -> Ways:
        ways = Ways()
        if "drop the key" in says:
            ways["way: drop the key"] = self._world.obstructed.clear
        if "ended by hand" in says or "end the superseded ones by hand" in says:
            ways["way: end by hand"] = self._end_superseded
        if "end them by hand" in says:
            ways["way: end all by hand"] = self._end_prepared
        found = _HALF.search(str(error))
        if found and "delete its rows and proofs" in says and not self._may_go_back():
            # only if it is said again when nobody writes any more
            delete = partial(delete_checkpoint, self._world, found[2], int(found[1]))
            living = self._drivers.living()
            ways["way: delete by hand"] = self._drivers.end_all if living else delete
        return ways

    # -- the end -----------------------------------------------------------------------------------

    def _lead_out(self, goal: int) -> None:
        """Do what is said until the job runs."""
        drivers = self._drivers
        self._tried.clear()
        for _ in range(_MOST_WAYS):
            drivers.settled = [*drivers.all]
            last = drivers.start_last(goal)
            if last.reached:
                return
            ways = self._ways(last.error) if last.error else {}
            self._oracle.holds(bool(ways), f"nothing leads on from {last.error!r}")
            self._do(ways)
        self._oracle.violated(f"{_MOST_WAYS} ways did not lead on from {last.error!r}")

    def _end(self) -> None:
        """Nobody is in the way: the job goes on from a savepoint elsewhere."""
        drivers, oracle, goal = self._drivers, self._oracle, self._world.options.checkpoints
        self._check_folders()
        running = self._shell.run(Command(MAKE, drivers.folder, self._path()))
        path = running.command.path if running.done else ""
        oracle.holds(
            bool(path) or "no checkpoint of the current lineage" in str(running.error),
            f"I8: no savepoint can be made: {running.error!r}",
        )
        self._left, drivers.restore_path = "", None
        if path:
            self._restore(self._carry(path), _REFUSE, elsewhere=True)
        last = drivers.start_last(goal)
        oracle.holds(last.reached, f"the job does not go on: {last.error!r}")
        oracle.holds(
            not path or drivers.restore_path in oracle.restored, f"{path} was not restored"
        )

    def _check_folders(self) -> None:
        """What a restore that has died has written of Spark's folder is gone; an empty folder may
        be left, whose note of who wrote it was not written yet, or deleted last.
        """
        if self._oracle.repaired.damaged:
            return
        found = self._world.disk.find(f"{self._folder}/spark")
        assert isinstance(found, Folder)
        known = {lineage for root, lineage in self._oracle.saved.begun if root == self._folder}
        left = {name for name in found.entries.keys() - known if _has_data(found.entries[name])}
        self._oracle.holds(not left, f"{sorted(left)} are left over")


def _has_data(node: Node) -> bool:
    if isinstance(node, File):
        return bool(node.data)
    return any(map(_has_data, node.entries.values()))
