"""Deterministic simulation: the real protocol, on a machine, a network and servers that a seed
drives to the edge.

    make simulate SEEDS=100000                 python -m verification.simulation --seeds 100000
    replay one that failed                     python -m verification.simulation --seed 1234
    in one of the worlds                       python -m verification.simulation --seeds
                                               1000 --world copied

One seed chooses what a run is like (`options.py`) and makes every choice in it: who has the next
turn, which call fails, who is killed or stands still where. The same seed does the same things,
whatever the machine, the load and the hash seed.

**Real.** The life of a job (`twophase/engine`): start, restart, stop, stop with a savepoint
(`JobSavepoints`), takeover; the coordinator with recovery, orphans and commit
(`twophase/coordinator`); log, records, codec, store and `LocalStorage` (`twophase/state`); the
beginning of a lineage, restores, Spark's folder as the product reads, writes and syncs it
(`SparkFolder`); the function that runs in each task (`twophase/spark/batch/writer_task.py`); the
MySQL sink from `open` to `close`: preflight, metadata, writers, encoding, committer, orphans,
fence, session locks, session exit, the driver's link, session settings (`sinks/mysql`).

**Simulated.**
- The disk (`disk.py`, `files.py`, `paths.py`): below `LocalStorage`, so that the order of its syncs
  and links is tested and not assumed. The calls of `os` and `pathlib.Path` that it makes are
  replaced in that module, and nothing else is. A power cut loses or tears what is not synced; calls
  fail with EIO and ENOSPC, writes are cut short, the reply to a link is lost.
- The servers (`server.py`, `engine.py`, `statements.py`, `loads.py`, `catalogue.py`,
  `dialects.py`): MySQL 8.0.12, MariaDB 10.11 and MySQL 9.7 as they were measured, with sessions,
  row locks, user-level locks, XA branches that are held, lost and found, crashes and restarts. They
  know the statements of the sink, whole; any other one stops the run.
- The network (`client.py`): stands for `twophase.sinks.mysql.client.session.Session`.
- Time, scheduling, processes (`scheduler.py`), random numbers. Tasks are greenlets that take turns;
  there are no threads. The engine's thread that watches, that of the query, the one that commits
  behind the next micro-batch and whoever calls stop are such tasks, with locks, conditions and
  events to match (`threads.py`).
- Spark, as a host of the engine (`host.py`): its thread plans a micro-batch, has it handled and
  notes it as finished, each at once and durably (`query_folder.py`). Tasks die, are tried twice or
  outlive their attempt (`spark.py`). A stop of the query cancels the micro-batch under way.
  `driver.py` is the process around it. `drivers.py` starts drivers, also while another lives;
  `supervisor.py` and `faults.py` are what befalls them.
- Operators who know no better (`standby.py`, `target_change.py`): a driver over a copy of the
  folder, a target that is restored from a backup or swapped.
- Operators who want something else at any moment (`operators.py`): any command, with the real code
  (`commands.py`, `savepoints.py`, `repairs.py`), any restore, and what an error says to do next. A
  command is killed or stands still in the middle, and is run beside a driver. What makes a repair
  necessary is in `incidents.py`; how a sink takes rows back is simulated (`rewinding.py`).

**Checked** at the moment it could break (`oracle.py`, `repaired.py`, `saved.py`, over what was
seen: `facts.py`; of the engine in `host.py` and `watched_sink.py`) and in the end (`verdict.py`):
I1 to I8, hazards H14, H28, H30, H40, H41, H48 to H50 and decision 0010; every row of every decided
checkpoint once in each sink, nothing prepared left, nothing undecided visible, every run ends. No
query begins after a stop, and no micro-batch after a stop with a savepoint, which cancels none;
nothing of a job goes on when it has ended, and no sink is called after its close; who is overtaken
does not take over again. `mutations.py` and `engine_mistakes.py` break the product on purpose; each
mistake has to be found.

**Not covered.** The wire protocol, TLS and LOAD DATA's conversions (`tests/sinks/mysql`,
`integration`); Spark itself, what it writes without a sync, and state in its folder; the statements
of a rewind; the rows of a fork; listeners; operator states of functions; `checkpoint.min_pause`;
damage to files that were durable (I9); a swapped server that lacks the sink's own tables.
"""
