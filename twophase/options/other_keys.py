"""Keys of a job's options beside the options' own: Flink's, and those that are refused.

Flink's have the names of Flink 2.x. A refused key would promise what nobody keeps if it were
ignored, so it is refused by name, with what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twophase.errors import ConfigError

_CHECKPOINTING = "execution.checkpointing."
_RECOVERY = "execution.state-recovery."
_RESTART = "restart-strategy."
_STRATEGY = "restart.strategy"
_DEFAULT_STRATEGY = "exponential"

# As Flink's; YAML reads a bare `off` as false.
_STRATEGIES = {
    "none": "none", "off": "none", "disable": "none", "false": "none",
    "fixed-delay": "fixed", "fixeddelay": "fixed",
    "failure-rate": "failure_rate", "failurerate": "failure_rate",
    "exponential-delay": "exponential", "exponentialdelay": "exponential",
}  # fmt: skip


@dataclass(frozen=True)
class FlinkKey:
    """A key of Flink's that is an alias of an option here.

    Attributes:
        name: the name in Flink 2.x.
        ours: the option here.
        duration: whether the value is a duration: without a unit, Flink's are milliseconds.
        values: our value for each value of Flink's, in lower case; empty where they are the same.
    """

    name: str
    ours: str
    duration: bool = False
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def strategy(self) -> str:
        """The restart strategy that it belongs to; empty for all others."""
        return _STRATEGIES.get(self.name.removeprefix(_RESTART).partition(".")[0], "")

    def value(self, given: Any) -> Any:
        """Return our option's value for Flink's; leave an unknown one to the option's own check."""
        if self.values and given is not None:
            return self.values.get(str(given).strip().lower(), given)
        if self.duration and not isinstance(given, bool) and _NUMBER.fullmatch(str(given)):
            return f"{str(given).strip()} ms"
        return given


def _same(*values: str) -> dict[str, str]:
    return {spelling: value for value in values for spelling in (value, value.replace("_", "-"))}


_NUMBER = re.compile(r"\s*\d+(\.\d+)?\s*")

KEYS = (
    FlinkKey(f"{_CHECKPOINTING}dir", "checkpointLocation"),
    FlinkKey(f"{_CHECKPOINTING}interval", "checkpoint.interval", duration=True),
    FlinkKey(
        f"{_CHECKPOINTING}mode", "checkpoint.mode", values=_same("exactly_once", "at_least_once")
    ),
    FlinkKey(f"{_CHECKPOINTING}timeout", "checkpoint.timeout", duration=True),
    FlinkKey(f"{_CHECKPOINTING}max-concurrent-checkpoints", "checkpoint.max_concurrent"),
    FlinkKey(f"{_CHECKPOINTING}min-pause", "checkpoint.min_pause", duration=True),
    FlinkKey(f"{_CHECKPOINTING}tolerable-failed-checkpoints", "checkpoint.tolerable_failures"),
    FlinkKey(f"{_CHECKPOINTING}num-retained", "checkpoint.num_retained"),
    FlinkKey(f"{_CHECKPOINTING}data-inline-threshold", "checkpoint.memory_threshold"),
    FlinkKey(f"{_CHECKPOINTING}savepoint-dir", "savepoint.dir"),
    FlinkKey("state.backend.type", "state.backend", values=_same("rocksdb", "hashmap")),
    FlinkKey(f"{_CHECKPOINTING}incremental", "state.backend.incremental"),
    FlinkKey(f"{_RESTART}type", _STRATEGY, values=_STRATEGIES),
    FlinkKey(f"{_RESTART}fixed-delay.attempts", "restart.attempts"),
    FlinkKey(f"{_RESTART}failure-rate.max-failures-per-interval", "restart.attempts"),
    FlinkKey(f"{_RESTART}fixed-delay.delay", "restart.delay", duration=True),
    FlinkKey(f"{_RESTART}failure-rate.delay", "restart.delay", duration=True),
    FlinkKey(f"{_RESTART}exponential-delay.initial-backoff", "restart.delay", duration=True),
    FlinkKey(f"{_RESTART}exponential-delay.max-backoff", "restart.delay_max", duration=True),
    FlinkKey(f"{_RESTART}failure-rate.failure-rate-interval", "restart.window", duration=True),
    FlinkKey(
        f"{_RESTART}exponential-delay.reset-backoff-threshold", "restart.window", duration=True
    ),
    FlinkKey(f"{_RECOVERY}path", "restore.path"),
    FlinkKey(f"{_RECOVERY}ignore-unclaimed-state", "restore.allow_non_restored_state"),
)

_RETAINED = (
    "leave it out: the job's folder is always retained; delete it by hand when the job has ended "
    "for good, and its targets with it"
)
_NOT_CLAIMED = (
    "leave it out: a savepoint belongs to whoever made it; `twophase savepoint dispose PATH` "
    "deletes it"
)
_ALIGNED = "leave it out: nothing to align, Spark freezes all offsets before a micro-batch begins"
_DOUBLES = (
    "leave it out: the pause doubles up to `restart.delay_max`, without jitter, and restarts never "
    "end; for a limit: `restart.strategy` `fixed` or `failure_rate`"
)
_LAST_ROWS = "leave it out: the last rows of a bounded run are always in its last checkpoint"
_STORAGE = "leave it out: checkpoints are always in the folder `checkpointLocation`"

_BY_NAME = {key.name: key for key in KEYS}
_OLDER_NAMES = {
    "state.checkpoints.dir": f"{_CHECKPOINTING}dir",
    "state.checkpoints.num-retained": f"{_CHECKPOINTING}num-retained",
    "state.storage.fs.memory-threshold": f"{_CHECKPOINTING}data-inline-threshold",
    "state.backend.fs.memory-threshold": f"{_CHECKPOINTING}data-inline-threshold",
    "state.savepoints.dir": f"{_CHECKPOINTING}savepoint-dir",
    "restart-strategy": f"{_RESTART}type",
    "execution.savepoint.path": f"{_RECOVERY}path",
    "execution.savepoint.ignore-unclaimed-state": f"{_RECOVERY}ignore-unclaimed-state",
}
REFUSED = {
    "checkpoint.copies": (
        "leave it out: back up the job's folder, or keep it on a file system with redundancy; if "
        "it is gone: `twophase repair adopt-from-target JOB.yaml`"
    ),
    "checkpoint.externalized_retention": _RETAINED,
    f"{_CHECKPOINTING}externalized-checkpoint-retention": _RETAINED,
    "restore.claim_mode": _NOT_CLAIMED,
    f"{_RECOVERY}claim-mode": _NOT_CLAIMED,
    "execution.savepoint-restore-mode": _NOT_CLAIMED,
    f"{_CHECKPOINTING}unaligned.enabled": _ALIGNED,
    f"{_CHECKPOINTING}unaligned": _ALIGNED,
    f"{_CHECKPOINTING}unaligned.forced": _ALIGNED,
    f"{_CHECKPOINTING}aligned-checkpoint-timeout": _ALIGNED,
    f"{_CHECKPOINTING}alignment-timeout": _ALIGNED,
    f"{_CHECKPOINTING}interval-during-backlog": (
        "leave it out: there is one interval; `maxRecordsPerTrigger` of the source bounds a "
        "micro-batch"
    ),
    f"{_CHECKPOINTING}checkpoints-after-tasks-finish": _LAST_ROWS,
    f"{_CHECKPOINTING}checkpoints-after-tasks-finish.enabled": _LAST_ROWS,
    f"{_CHECKPOINTING}storage": _STORAGE,
    "state.checkpoint-storage": _STORAGE,
    f"{_RECOVERY}from-local": (
        "leave it out: Spark's executors keep their part of the state on their own"
    ),
    f"{_RESTART}exponential-delay.backoff-multiplier": _DOUBLES,
    f"{_RESTART}exponential-delay.jitter-factor": _DOUBLES,
    f"{_RESTART}exponential-delay.attempts-before-reset-backoff": _DOUBLES,
    **{older: f"write `{name}` or `{_BY_NAME[name].ours}`" for older, name in _OLDER_NAMES.items()},
}
"""What to do instead of setting each of these keys."""


def our_key(name: str) -> str:
    """Return our key of an option that may have Flink's name."""
    return _BY_NAME[name].ours if name in _BY_NAME else name


def as_written(options: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return name and value of each option as the user wrote them, by our key, for errors."""
    return {our_key(name): (name, given) for name, given in options.items()}


def with_our_keys(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options under our keys; those that Flink does not know stay as they are.

    Args:
        options: keys as the user wrote them.
        where: what the options belong to, for errors.

    Raises:
        ConfigError: two keys set the same option; or one is refused by name, or does not apply to
            the job's restart strategy.
    """
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, given in options.items():
        if name in REFUSED:
            raise ConfigError(
                f"{where}: option {name!r} is not supported.", remedy=f"{REFUSED[name]}."
            )
        key, ours = _BY_NAME.get(name), our_key(name)
        if ours in found:
            raise ConfigError(
                f"{where}: {names[ours]!r} and {name!r} set the same option.",
                remedy="keep one of the two.",
            )
        names[ours] = name
        found[ours] = key.value(given) if key else given
    _check_strategies(names.values(), found.get(_STRATEGY, _DEFAULT_STRATEGY), where)
    return found


def _check_strategies(names: Any, strategy: Any, where: str) -> None:
    for name in names:
        key = _BY_NAME.get(name)
        if key and key.strategy and key.strategy != str(strategy):
            raise ConfigError(
                f"{where}: {name!r} does not apply to the job's restart strategy "
                f"{str(strategy)!r}.",
                remedy=f"set `{_STRATEGY}={key.strategy}`, or leave it out.",
            )
