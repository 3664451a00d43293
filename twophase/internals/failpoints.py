"""Crash points: named places where a test can kill, stop, fail or delay this process.

    TWOPHASE_FAILPOINTS="C06=kill,C13=raise@2,C09=delay:200"

`name=action@k` acts on the k-th time the point is reached in this process (default 1), and only
then; `name=action@*` acts each time. Actions: `kill` (SIGKILL to this process), `kill_driver`
(SIGKILL to the process that `TWOPHASE_DRIVER_PID` names, from a worker), `stop` (SIGSTOP), `raise`
(`FailpointError`), `delay:ms`. Unset, a failpoint is one dictionary look-up.
`TWOPHASE_FAILPOINTS_LOG` names a file that gets a line for each point acted on, synced before the
action. Processes that share it act on `name=action@k` once among all of them, so that a worker
started after a kill does not die again.

The crash points of the protocol:

    C01  an attempt begins                      C02  states are snapshotted, no sink has begun
    C03  a task has pre-committed, the driver has not heard of it
    C04  a piece is not durable yet             C05  it is
    C06  all sinks have acknowledged, nothing is decided
    C07  the record of the decision is half written; C08 not synced; C09 not linked; C10 its
         folder is not synced
    C11  decided, committed nowhere             C12  before a sink's first piece is committed
    C13  between two pieces                     C14  a piece is committed, the driver
                                                     has not heard of it
    C15  a sink has committed all of them       C16  the job's log says committed,
                                                     Spark has not been told
    C17  old bodies and records are being deleted
    C18  recovery has appended its fence        C19  it has committed one decided checkpoint
    C20  it is aborting orphans                 C22  it has committed all that is decided
    A01  a sink is decided ahead of the others, committed nowhere
    A02  it has committed, the others have not acknowledged
    E01  a worker has written rows              E02  as C03, where only the worker dies
    D01, D02  before and after a commit to a Delta, Iceberg or Paimon table
    D03, D04  before and after the commit of a rewind to it
    F01  a staged file is not durable yet (Delta: the manifest)
    F02  the manifest is written                F03  between the renames of two partitions
    F04  all files are visible, the proof is not there
    F05  the partitions are in the metastore, other policies have not run
    F06  an abort has hidden staged files, and has not searched the table for them
    F07  a rewind has removed one file from the table, and not the next
    F08  it has removed all of them, their proofs are there
    F09  a proof is still there, the marks are lowered
    F10  no proof is left, the files are not deleted
    F11  a file is back in the table, of a rewind that is given up
    K01  a part of a staged piece is copied to a topic; K02 all of it, the copy is not committed
    M01  a rewind has removed rows from a MySQL table, others are left
    O01  the file of a large state is half written; O02 not synced; O03 not linked; O04 its
         folder is not synced
    O05  all such files are there, the body is not
    O06  one of them is deleted
    S01  a savepoint's folder is claimed         S02  a part of its data is written
    S03  all of its data is, the manifest is not S04  it is whole
    S05  a restore has written a file of Spark's S06  all of them, the lineage has not begun
    S07  the restored lineage has begun          S08  a savepoint's checkpoint is committed,
                                                      its folder does not say so
    S09  a savepoint that is disposed of has no manifest any more; S10 a part of it is gone
    S11  a rewind is recorded, no sink is rewound
    S12  one sink is, the next one is not        S13  all are, the lineage has not begun
    S14  a rescale has written Spark's files     S15  Spark has repartitioned their state
    R01  a repair has taken the job over        R02  the operator has said yes, nothing is recorded
    R03  the repair is recorded, and not carried out
    R04  lost pieces are written again          R05  the body that lists them is there,
                                                     the record is not
    R06  a sink is fenced, and has settled a rewind that is given up
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from twophase.errors import ConfigError

VARIABLE = "TWOPHASE_FAILPOINTS"
LOG_VARIABLE = "TWOPHASE_FAILPOINTS_LOG"
DRIVER_VARIABLE = "TWOPHASE_DRIVER_PID"
_ACTIONS = ("kill", "kill_driver", "stop", "raise", "delay")


class FailpointError(Exception):
    """Raised by a failpoint with the action `raise`."""


@dataclass(frozen=True)
class _Rule:
    action: str
    argument: int
    hit: int | None


def _parse(text: str) -> dict[str, _Rule]:
    rules: dict[str, _Rule] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = entry.partition("=")
        action, _, hit = rest.partition("@")
        action, _, argument = action.partition(":")
        if not name or action not in _ACTIONS:
            raise _malformed(entry, "has no name or no known action")
        try:
            rules[name] = _Rule(action, int(argument or 0), None if hit == "*" else int(hit or 1))
        except ValueError:
            raise _malformed(entry, "has no whole number where one belongs") from None
    return rules


def _malformed(entry: str, what: str) -> ConfigError:
    return ConfigError(
        f"{VARIABLE}: {entry!r} {what}.",
        remedy=f"use name=ACTION with one of {', '.join(_ACTIONS)}, such as C09=delay:200, "
        "then @k or @*.",
    )


_rules = _parse(os.environ.get(VARIABLE, ""))
_hits: dict[str, int] = {}
_lock = threading.Lock()


def be_the_driver(log: Path | None = None) -> None:
    """Make this process the one that `kill_driver` kills, for itself and all its children.

    Args:
        log: receives a line for each failpoint that acts.
    """
    os.environ[DRIVER_VARIABLE] = str(os.getpid())
    if log is not None:
        os.environ[LOG_VARIABLE] = str(log)


def arm(text: str) -> None:
    """Arm the failpoints in `text` and no others, and reset the hit counts, as after a fork."""
    global _rules
    rules = _parse(text)
    with _lock:
        _rules = rules
        _hits.clear()


def failpoint(name: str) -> None:
    """Act if `name` is armed; otherwise do nothing."""
    rule = _rules.get(name)
    if rule is None:
        return
    with _lock:
        _hits[name] = _hits.get(name, 0) + 1
        if rule.hit is not None and _hits[name] != rule.hit:
            return
    if not _claim(name, rule):
        return
    _write_log(name, rule)
    match rule.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill_driver":
            os.kill(int(os.environ[DRIVER_VARIABLE]), signal.SIGKILL)
        case "stop":
            # To this thread: sent to the process, another thread may take the signal
            # while this one runs on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "raise":
            raise FailpointError(f"failpoint {name}")
        case _:
            time.sleep(rule.argument / 1000)


def _claim(name: str, rule: _Rule) -> bool:
    """Return whether this process is the one that acts."""
    path = os.environ.get(LOG_VARIABLE)
    if path is None or rule.hit is None:
        return True
    try:
        os.close(os.open(f"{path}.{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _write_log(name: str, rule: _Rule) -> None:
    path = os.environ.get(LOG_VARIABLE)
    if path is None:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{name} {rule.action} {os.getpid()}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
