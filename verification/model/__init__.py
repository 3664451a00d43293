"""The protocol as a model, and a checker that visits every state of it.

The invariants of docs/architecture.md say what must hold whatever crashes, pauses or gets lost, and
whenever. Tests try some of those moments. Here the protocol is written down as states and steps,
and all moments are tried: between any two steps of any driver, task or server,
everything else may happen.

How to read it
    explore          the checker: breadth first, invariants, shortest traces, and whether the
                     goal stays in reach
    lamport          two specifications whose numbers of states are known: 34 and 288
    pieces, state    what a state is made of
    steps, protocol  where a driver can stand; everything that can happen next
    log              append, check and fold (`twophase.state.journal.log`)
    recovery         look, take over, restore (`twophase.coordinator.recovery.recovery`,
                     `twophase.operations.savepoint.restore`)
    planning         what a start may do: the product's own function, called
                     (`twophase.coordinator.recovery.plan`)
    closing          scan, fence, scan (`twophase.coordinator.commit.orphans`,
                     `twophase.sinks.mysql.fence`)
    checkpoint       trigger to subsume (`twophase.coordinator.coordinator`, `.commit`)
    sinks            tasks, sessions and what servers answer (`twophase.testing.memory`,
                     `twophase.sinks.mysql`)
    faults           what goes wrong, what operators do
    ahead            sinks that commit ahead of the others
                     (`twophase.coordinator.commit.sink_decisions`)
    savepoints       made, finished, moved, restored, rewound to, forked
                     (`twophase.operations.savepoint.make`, `.savepoint_restore`,
                     `twophase.operations.savepoint.finish`)
    repairs          how an operator leads the job out (`twophase.operations.repair.accept_loss`,
                     `.rewrite`, `.adopt`, `.abandon_rewind`)
    invariants       I1 to I8 and the goal: how each is expressed is in its docstring
    ways_on          that no state is a dead end
    world, configurations, mutants    the worlds that are checked, and the deliberate mistakes
                                      that must be found; those in the product's plan of a start
                                      are in `plan_mistakes`
    conformance, event_map            what the product reported of its runs, compared with the
                                      model event by event

What is in it
    Two sinks of two branches, three checkpoints, two of them under way at once. Drivers that die
        at any step or pause
    there while others take over; their tasks, which pre-commit late; lost replies, which are deaths
        right after a step
    or tries that are repeated; the log's creates, checks and folds, and a power loss between link
        and sync; restores into
    a new lineage, from the folder or a copy of it; collapsed proofs; MySQL 8.0, MySQL 9.7 and
        MariaDB, with their
    sessions, locks, early OKs, commits in flight and crashes; a task attempt that loses; a rollback
        by hand; lost pieces that are given up or
    written again beside a driver, and come back; the targets' checkpoints adopted after the folder
        is lost; a driver over a copy of
    the folder beside the one over the original; a target that is restored from a backup of any age,
        swapped for an empty one, or for an older copy on another server; the folder restored
        from a copy; savepoints, made at any time and restored in the job's folder
        or beside an empty one; a rewind to one, given up or not, and another job that begins
        with one; sinks that commit ahead of each other, in any order, or do not.

What is not
    Bytes (I9), targets (I10), clocks, back-off, the bodies beside the log, Spark's own folder (it
        is taken to agree with
    the log; `classify` refuses it otherwise), empty pieces, operator state, a copy of the
        folder that fences at
    the same instant as the original, storage that lists a folder in pieces. Where a copy lives, I2
        and I7 ask less (see `invariants`):
    no log fences the driver over another. Rows inside a branch are all or nothing: the
        servers promise that.

Why it is sound to leave steps out or take them together
    - A driver's steps that nobody else can see are one step with the next that somebody can.
    - Reading both sinks, or all records, is one step: what is read later can only say
      more, and refuses more.
    - XA COMMIT with the looks that follow it is one step: nothing can happen between them that
      changes the answer, because a proof goes only after the mark that stands for it is there.
    - A task of a closed attempt that has not begun is taken away at once: whenever it began,
      it would be refused.
    - A check after an append is a step of its own only in worlds that fold: elsewhere nothing it
      looks at can change.
    - An in-doubt outcome ends the driver, as its death at that step does.
    Everything else errs to the side of more behaviour: pieces are committed in any order, drivers
        wake up at any time.

Every small world is visited whole, so within its bounds a promise that holds in the model holds.
That the product does what the model does is checked on what it reports: the events of its runs are
accepted, and with one event missing, repeated, in the wrong place or with another
content they are not.
"""
