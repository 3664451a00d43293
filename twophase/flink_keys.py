"""Flink's keys for a job's options: aliases, deprecated names, and keys without an option.

The names are those of Flink 2.x. A name that Flink 1.x had and 2.x deprecates is accepted with a
warning. A key that Flink knows and that cannot mean anything here is refused with what to do
instead: ignored, it would promise what nobody keeps.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twophase.errors import ConfigError

_log = logging.getLogger("twophase")
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
        deprecated: its older names.
        duration: whether the value is a duration: without a unit, Flink's are milliseconds.
        values: our value for each value of Flink's, in lower case; empty where they are the same.
        strategy: the restart strategy that it belongs to; empty for all others.
    """

    name: str
    ours: str
    deprecated: tuple[str, ...] = ()
    duration: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    strategy: str = ""

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
    FlinkKey(f"{_CHECKPOINTING}dir", "checkpointLocation", ("state.checkpoints.dir",)),
    FlinkKey(f"{_CHECKPOINTING}interval", "checkpoint.interval", duration=True),
    FlinkKey(
        f"{_CHECKPOINTING}mode", "checkpoint.mode", values=_same("exactly_once", "at_least_once")
    ),
    FlinkKey(f"{_CHECKPOINTING}timeout", "checkpoint.timeout", duration=True),
    FlinkKey(f"{_CHECKPOINTING}max-concurrent-checkpoints", "checkpoint.max_concurrent"),
    FlinkKey(f"{_CHECKPOINTING}min-pause", "checkpoint.min_pause", duration=True),
    FlinkKey(f"{_CHECKPOINTING}tolerable-failed-checkpoints", "checkpoint.tolerable_failures"),
    FlinkKey(
        f"{_CHECKPOINTING}num-retained",
        "checkpoint.num_retained",
        ("state.checkpoints.num-retained",),
    ),
    FlinkKey(
        f"{_CHECKPOINTING}data-inline-threshold",
        "checkpoint.memory_threshold",
        ("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
    ),
    FlinkKey(f"{_CHECKPOINTING}savepoint-dir", "savepoint.dir", ("state.savepoints.dir",)),
    FlinkKey(
        f"{_CHECKPOINTING}externalized-checkpoint-retention",
        "checkpoint.externalized_retention",
        values=_same(
            "retain_on_cancellation", "delete_on_cancellation", "no_externalized_checkpoints"
        ),
    ),
    FlinkKey("state.backend.type", "state.backend", values=_same("rocksdb", "hashmap")),
    FlinkKey(f"{_CHECKPOINTING}incremental", "state.backend.incremental"),
    FlinkKey(f"{_RESTART}type", _STRATEGY, ("restart-strategy",), values=_STRATEGIES),
    FlinkKey(f"{_RESTART}fixed-delay.attempts", "restart.attempts", strategy="fixed"),
    FlinkKey(
        f"{_RESTART}failure-rate.max-failures-per-interval",
        "restart.attempts",
        strategy="failure_rate",
    ),
    FlinkKey(f"{_RESTART}fixed-delay.delay", "restart.delay", duration=True, strategy="fixed"),
    FlinkKey(
        f"{_RESTART}failure-rate.delay", "restart.delay", duration=True, strategy="failure_rate"
    ),
    FlinkKey(
        f"{_RESTART}exponential-delay.initial-backoff",
        "restart.delay",
        duration=True,
        strategy="exponential",
    ),
    FlinkKey(
        f"{_RESTART}exponential-delay.max-backoff",
        "restart.delay_max",
        duration=True,
        strategy="exponential",
    ),
    FlinkKey(
        f"{_RESTART}failure-rate.failure-rate-interval",
        "restart.window",
        duration=True,
        strategy="failure_rate",
    ),
    FlinkKey(
        f"{_RESTART}exponential-delay.reset-backoff-threshold",
        "restart.window",
        duration=True,
        strategy="exponential",
    ),
    FlinkKey(f"{_RECOVERY}path", "restore.path", ("execution.savepoint.path",)),
    FlinkKey(
        f"{_RECOVERY}ignore-unclaimed-state",
        "restore.allow_non_restored_state",
        ("execution.savepoint.ignore-unclaimed-state",),
    ),
    FlinkKey(
        f"{_RECOVERY}claim-mode",
        "restore.claim_mode",
        ("execution.savepoint-restore-mode",),
        values=_same("no_claim", "claim"),
    ),
)

_ALIGNED = "nothing to align: Spark freezes all offsets before a micro-batch begins"
_DOUBLES = (
    "the pause doubles up to `restart.delay_max`, without jitter, and restarts never end; for a "
    "limit: `restart.strategy` `fixed` or `failure_rate`"
)
_LAST_ROWS = "always so: the last rows of a bounded run are in its last checkpoint"
_STORAGE = "always the folder `checkpointLocation`"

INSTEAD = {
    f"{_CHECKPOINTING}unaligned.enabled": _ALIGNED,
    f"{_CHECKPOINTING}unaligned": _ALIGNED,
    f"{_CHECKPOINTING}unaligned.forced": _ALIGNED,
    f"{_CHECKPOINTING}aligned-checkpoint-timeout": _ALIGNED,
    f"{_CHECKPOINTING}alignment-timeout": _ALIGNED,
    f"{_CHECKPOINTING}interval-during-backlog": (
        "one interval; `maxRecordsPerTrigger` of the source bounds a micro-batch"
    ),
    f"{_CHECKPOINTING}checkpoints-after-tasks-finish": _LAST_ROWS,
    f"{_CHECKPOINTING}checkpoints-after-tasks-finish.enabled": _LAST_ROWS,
    f"{_CHECKPOINTING}storage": _STORAGE,
    "state.checkpoint-storage": _STORAGE,
    f"{_RECOVERY}from-local": "Spark's executors keep their part of the state on their own",
    f"{_RESTART}exponential-delay.backoff-multiplier": _DOUBLES,
    f"{_RESTART}exponential-delay.jitter-factor": _DOUBLES,
    f"{_RESTART}exponential-delay.attempts-before-reset-backoff": _DOUBLES,
}
"""What to do instead of each of Flink's keys that has no counterpart here."""

_BY_NAME = {name: key for key in KEYS for name in (key.name, *key.deprecated)}


def flink_names(ours: str) -> frozenset[str]:
    """Return Flink's names for an option, its deprecated ones too."""
    return frozenset(name for name, key in _BY_NAME.items() if key.ours == ours)


def with_our_keys(options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the options under our keys; those that Flink does not know stay as they are.

    Args:
        options: keys as the user wrote them.
        where: what the options belong to, for errors and warnings.

    Raises:
        ConfigError: two keys set the same option; or one of Flink's has no counterpart here, or
            does not apply to the job's restart strategy.
    """
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name, given in options.items():
        if name in INSTEAD:
            raise ConfigError(
                f"{where}: Flink's key {name!r} has no counterpart here.",
                remedy=f"leave it out: {INSTEAD[name]}.",
            )
        key = _BY_NAME.get(name)
        ours = key.ours if key else name
        if ours in found:
            raise ConfigError(
                f"{where}: {names[ours]!r} and {name!r} set the same option.",
                remedy="keep one of the two.",
            )
        names[ours] = name
        found[ours] = key.value(given) if key else given
    _check_strategies(names.values(), found.get(_STRATEGY, _DEFAULT_STRATEGY), where)
    _warn_of_deprecated(names.values(), where)
    return found


def _check_strategies(names: Any, strategy: Any, where: str) -> None:
    for name in names:
        key = _BY_NAME.get(name)
        if key and key.strategy and key.strategy != str(strategy):
            raise ConfigError(
                f"{where}: {name!r} does not apply to the job's restart strategy "
                f"{str(strategy)!r}.",
                remedy=f"set {_STRATEGY} to {key.strategy!r}, or leave it out.",
            )


def _warn_of_deprecated(names: Any, where: str) -> None:
    for name in names:
        key = _BY_NAME.get(name)
        if key and name != key.name:
            _log.warning(
                "%s: Flink's key %s is deprecated: write %s or %s", where, name, key.name, key.ours
            )
