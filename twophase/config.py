"""Options: parsed once at the edge, frozen, checked before any write.

Every group of options is a subclass of `Options`. Values may be strings, as Spark passes them, or typed. Unknown keys
and bad values become one `ConfigError` that names the key, the value, what is allowed and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from twophase.errors import ConfigError

_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip


def parse_duration_s(value: object) -> object:
    """Turn '10 seconds', '500 ms' or '10 min' into seconds; leave anything else to the type check."""
    if isinstance(value, bool):
        raise ValueError("a duration is a number with a unit, not true or false")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower())
    if match is None or (match[2] and match[2] not in _UNITS_S):
        raise ValueError("give a number with a unit: ms, s, min or h, such as '10 s'")
    return float(match[1]) * _UNITS_S.get(match[2], 1.0)


Duration = Annotated[float, BeforeValidator(parse_duration_s), Field(ge=0, allow_inf_nan=False)]
"""Seconds, zero or more."""


def parse_names(value: object) -> object:
    """Split 'a, b', as Spark passes options, into its names; leave anything else to the type check."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]
"""Names, as a list or separated by commas."""


class Options(BaseModel):
    """A frozen group of options. Unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """Parse and validate `options`.

        Args:
            options: keys as the user wrote them.
            where: what the options belong to, for the error, such as "sink 'facts'".

        Raises:
            ConfigError: a key is unknown or missing, or its value is not allowed.
        """
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise ConfigError(_explain(cls, error, where)) from None

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that a user may set, as documented."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def _explain(cls: type[Options], error: ValidationError, where: str) -> str:
    problems = []
    for detail in error.errors(include_url=False, include_context=False):
        key = ".".join(str(part) for part in detail["loc"]) or "options"
        match detail["type"]:
            case "extra_forbidden":
                near = difflib.get_close_matches(key, cls.keys(), n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(sorted(cls.keys()))}."
                problems.append(f"{where}: unknown option {key!r}; {hint}")
            case "missing":
                problems.append(f"{where}: option {key!r} is required.")
            case _:
                message = detail["msg"].removeprefix("Value error, ")
                problems.append(f"{where}: option {key!r} is {detail['input']!r}: {message}.")
    return " ".join(problems)


class CheckpointMode(StrEnum):
    """Delivery guarantee. There is only one; a job that asks for another is rejected."""

    EXACTLY_ONCE = "exactly_once"


class RestartStrategy(StrEnum):
    """Restart strategy of the job after a restartable error."""

    EXPONENTIAL = "exponential"
    FIXED = "fixed"
    FAILURE_RATE = "failure_rate"
    NONE = "none"


class JobOptions(Options):
    """Options of a job. docs/configuration.md maps them to Flink's keys, where Flink has them."""

    checkpoint_location: str = Field(alias="checkpointLocation", min_length=1)
    interval_s: Duration | None = Field(default=None, alias="checkpoint.interval")
    mode: CheckpointMode = Field(default=CheckpointMode.EXACTLY_ONCE, alias="checkpoint.mode")
    timeout_s: Duration = Field(default=600.0, alias="checkpoint.timeout", gt=0)
    max_concurrent: int = Field(default=1, alias="checkpoint.max_concurrent", ge=1, le=100)
    min_pause_s: Duration = Field(default=0.0, alias="checkpoint.min_pause")
    tolerable_failures: int = Field(default=0, alias="checkpoint.tolerable_failures", ge=0, le=1000)
    num_retained: int = Field(default=1, alias="checkpoint.num_retained", ge=1, le=10_000)
    commit_backoff_s: Duration = Field(default=0.1, alias="commit.backoff", gt=0)
    commit_backoff_max_s: Duration = Field(default=30.0, alias="commit.backoff_max", gt=0)
    restart_strategy: RestartStrategy = Field(default=RestartStrategy.EXPONENTIAL, alias="restart.strategy")
    restart_attempts: int = Field(default=10, alias="restart.attempts", ge=0)
    restart_delay_s: Duration = Field(default=1.0, alias="restart.delay")
    restart_delay_max_s: Duration = Field(default=60.0, alias="restart.delay_max")
    restart_window_s: Duration = Field(default=600.0, alias="restart.window", gt=0)
    restore_path: str | None = Field(default=None, alias="restore.path")
    allow_non_restored_state: bool = Field(default=False, alias="restore.allow_non_restored_state")
    error_if_no_checkpoint: bool = Field(default=False, alias="restore.error_if_no_checkpoint")

    @field_validator("min_pause_s")
    @classmethod
    def _pause_alone(cls, pause_s: float, info: ValidationInfo) -> float:
        """Flink has the same rule: with a pause after each commit, no commit can overlap the next checkpoint."""
        if pause_s and info.data.get("max_concurrent", 1) > 1:
            raise ValueError("a pause after each commit needs checkpoint.max_concurrent = 1")
        return pause_s
