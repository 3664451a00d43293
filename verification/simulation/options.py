"""What one run is like. The seed chooses all of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random

from verification.simulation.dialects import DIALECTS

POINTS = (*(f"C{number:02d}" for number in range(1, 21)), "C22", "E01", "E02")
"""The crash points of the protocol; others are added to the run by looking for
them in the product.
"""

_PLACES = (
    "disk link", "disk sync", "disk mkdir", "disk unlink", "disk list",
    "XA START", "XA PREPARE", "XA COMMIT", "XA ROLLBACK", "XA RECOVER", "IS_USED_LOCK", "twophase_",
    "SELECT generation",
)  # fmt: skip
_PAUSES_S = (0.1, 3.0, 30.0)
_DRIVER_STEPS_BITS = 8.5
_TASK_STEPS = 25


@dataclass(frozen=True)
class Mishap:
    """What befalls a process.

    Attributes:
        place: part of the name of the step; empty: any step.
        count: which one of these.
        pause_s: it stands still for so long; 0: it is killed.
    """

    place: str
    count: int
    pause_s: float

    @classmethod
    def of_driver(cls, random: Random) -> Mishap:
        pause_s = random.choice((0.0, 0.0, *_PAUSES_S))
        match random.randrange(3):
            case 0:
                return cls(random.choice(POINTS), random.choice((1, 1, 2, 4)), pause_s)
            case 1:
                return cls(random.choice(_PLACES), random.choice((1, 1, 2, 3, 5)), pause_s)
            case _:
                return cls("", int(2 ** (random.random() * _DRIVER_STEPS_BITS)), pause_s)

    @classmethod
    def of_latecomer(cls, random: Random) -> Mishap:
        """A task that its driver believes to have ended goes on, when the driver
        is long elsewhere.
        """
        return cls("", random.randint(1, _TASK_STEPS // 2), 10 ** (-3 * random.random()))

    @classmethod
    def of_task(cls, random: Random) -> Mishap:
        return cls("", random.randint(1, _TASK_STEPS), random.choice((0.0, *_PAUSES_S)))


@dataclass(frozen=True)
class Options:
    """The options of a run. Rates are chances for one input or output; budgets bound how
    often they may strike.

    Attributes:
        seed: chose everything else, and makes every choice of the run.
        sinks: the dialect of the server of each sink; sinks of one dialect share a
            server if `one_server`.
        one_server: whether sinks share a server.
        writers: tasks of a sink in one attempt.
        checkpoints: how many there are to take.
        keyed: whether the targets have a primary key.
        local_infile: whether rows go by LOAD DATA LOCAL.
        load_rows: rows in one statement, at the most.
        tolerable_failures: the job's option.
        num_retained: the job's option.
        fold_at: the log is folded when it has so many records and a checkpoint is committed.
        subsume_every: sinks collapse their proofs at each checkpoint whose number and one
            is a multiple of it.
        switching: how likely a task hands its turn on at an input or output.
        drivers: how many may live at once.
        mishaps: of the drivers, in their order.
        rivals: so many drivers are started although another one lives.
        suspicion: how likely one more is started because one stands still.
        stops: so many times a driver is asked to stop.
        power_cuts: so many times the drivers' machine goes down.
        server_crashes: so many times a server does.
        disk_rate, disk_budget: calls of the file system that fail.
        network_rate, network_budget: statements and connections that fail.
        late_rate: a task outlives its attempt, or a task is tried twice.
        mishap_rate: a task is killed, or stands still.
        lingering_s: how long a server takes to end a session, each of two steps, at the most.
        restore: whether the job is restored on the way: "here" in its folder, where an old driver
            may still run, or "elsewhere" in another one.
        meddling: what somebody does by hand to a decided piece: "commit", "roll back", or nothing.
        emptied: whether the job's folder is emptied in the end: a start must be refused.
        max_concurrent: the job's option; 1 if the targets have a primary key, where the
            sink refuses more.
        side_by_side: whether recovery asks and closes the sinks at once, as jobs on Spark do. No
            seed chooses it: the model, which traces of seeds are checked against, knows
            one after the other.
        chained: whether a task writes to all sinks. No seed chooses it: a step of a task is another
            one then.
        world: what befalls the job's folder or its targets, see `worlds`; no seed chooses it.
        empty_rate: how likely a micro-batch has no rows at all.
        restored_behind: a target is restored after so many decisions, while the driver stands
            still, to what it was when pieces of an older one were prepared; 0: whenever, see
            `target_change`. No seed chooses it.
        ahead: whether sinks commit ahead of the others in some of the drivers; no seed chooses it.
        incident: what makes a repair necessary, see `incidents`; no seed chooses it.
        watermark: whether the plan has a watermark: a start then runs the newest micro-batch again,
            also when it is committed.
    """

    seed: int
    sinks: tuple[str, ...]
    one_server: bool
    writers: int
    checkpoints: int
    keyed: bool
    local_infile: bool
    load_rows: int
    tolerable_failures: int
    num_retained: int
    fold_at: int
    subsume_every: int
    switching: float
    drivers: int
    mishaps: tuple[Mishap, ...]
    rivals: int
    suspicion: float
    stops: int
    power_cuts: int
    server_crashes: int
    disk_rate: float
    disk_budget: int
    network_rate: float
    network_budget: int
    late_rate: float
    mishap_rate: float
    lingering_s: float
    restore: str
    meddling: str
    emptied: bool
    max_concurrent: int
    side_by_side: bool = False
    chained: bool = False
    world: str = ""
    empty_rate: float = 0.1
    restored_behind: int = 0
    watermark: bool = False
    ahead: bool = False
    incident: str = ""

    @classmethod
    def of(cls, seed: int) -> Options:
        """The options that a seed stands for."""
        random = Random(seed)
        count = random.choice((1, 1, 2))
        dialects = [random.choice(list(DIALECTS)) for _ in range(count)]
        one_server = random.random() < 0.5
        options = cls(
            seed=seed,
            sinks=tuple(dialects[:1] * count if one_server else dialects),
            one_server=one_server,
            writers=random.choice((1, 2, 2, 3)),
            checkpoints=random.randint(2, 5),
            keyed=random.random() < 0.4,
            local_infile=random.random() < 0.8,
            load_rows=random.choice((2, 100)),
            tolerable_failures=random.choice((0, 1, 2)),
            num_retained=random.choice((1, 1, 2, 3)),
            fold_at=random.choice((3, 5, 7)),
            subsume_every=random.choice((1, 2, 3)),
            switching=random.choice((0.05, 0.2, 0.5)),
            drivers=random.choice((1, 2, 2, 3)),
            mishaps=tuple(Mishap.of_driver(random) for _ in range(random.choice((0, 1, 2, 3)))),
            rivals=random.choice((0, 0, 1, 2)),
            suspicion=random.choice((0.0, 0.8)),
            stops=random.choice((0, 0, 0, 1)),
            power_cuts=random.choice((0, 0, 0, 1)),
            server_crashes=random.choice((0, 0, 0, 1)),
            disk_rate=random.choice((0.002, 0.02)),
            disk_budget=random.choice((0, 0, 1, 2)),
            network_rate=random.choice((0.001, 0.01)),
            network_budget=random.choice((0, 0, 1, 3)),
            late_rate=random.choice((0.0, 0.0, 0.2)),
            mishap_rate=random.choice((0.0, 0.0, 0.1)),
            lingering_s=random.choice((0.000_5, 0.003, 0.02)),
            restore=random.choice(("here", "elsewhere", *[""] * 14)),
            meddling=random.choice(("commit", "roll back", *[""] * 30)),
            emptied=random.random() < 0.05,
            max_concurrent=random.choice((1, 1, 2, 3)),
            watermark=Random(f"watermark {seed}").random() < 0.5,
        )
        return replace(options, max_concurrent=1) if options.keyed else options

    def __str__(self) -> str:
        return "\n".join(
            f"  {field.name} = {getattr(self, field.name)!r}" for field in fields(self)
        )
