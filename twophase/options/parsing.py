"""Options: parsed once at the edge, frozen, checked before any write.

Every group of options is a subclass of `Options`. Values may be strings, as Spark passes them, or
typed. Unknown keys and bad values become one `ConfigError` that names the key, the value, what is
allowed and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from enum import EnumType
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from twophase.errors import ConfigError

_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "min": 60.0, "minute": 60.0, "minutes": 60.0,
    "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    # These are Flink's.
    "ns": 1e-9, "nano": 1e-9, "nanos": 1e-9, "nanosecond": 1e-9, "nanoseconds": 1e-9,
    "µs": 1e-6, "micro": 1e-6, "micros": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "milli": 0.001, "millis": 0.001, "secs": 1.0, "m": 60.0, "d": 86_400.0, "day": 86_400.0,
    "days": 86_400.0,
}  # fmt: skip

_YAML_WORDS = {False: ("off", "no", "false"), True: ("on", "yes", "true")}
"""The words that YAML 1.1 reads as a boolean."""
_NO_WORD = "not true or false"
_OF_SECRET = re.compile(r"(?:^|[._])(?:env|file)$")
"""Keys of options that name where a secret is: it may have been written there itself."""

_UNITS_BYTES = {
    "": 1, "b": 1, "bytes": 1,
    "k": 1024, "kb": 1024, "kibibytes": 1024,
    "m": 1024**2, "mb": 1024**2, "mebibytes": 1024**2,
}  # fmt: skip


def parse_duration_s(value: object) -> object:
    """Turn '10 seconds', '500 ms' or '10 min' into seconds; leave the rest to the type check."""
    if isinstance(value, bool):
        raise ValueError("a duration is a number with a unit, " + _NO_WORD)
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", value.lower())
    if match is None or (match[2] and match[2] not in _UNITS_S):
        raise ValueError("give a number with a unit: ms, s, min, h or d, such as '10 s'")
    return float(match[1]) * _UNITS_S.get(match[2], 1.0)


LONGEST_S = 36_500 * 86_400.0
"""A hundred years, for ever: Java's longest time, which configurations of Flink have for it, is
more than a wait can be told.
"""


def _shortened(seconds: float) -> float:
    return min(seconds, LONGEST_S)


Interval = Annotated[float, BeforeValidator(parse_duration_s), Field(ge=0, allow_inf_nan=False)]
"""Seconds, zero or more. Spark refuses one that is too long: a job would never begin anything."""
Duration = Annotated[
    float,
    BeforeValidator(parse_duration_s),
    Field(ge=0, allow_inf_nan=False),
    AfterValidator(_shortened),
]
"""Seconds to wait, zero or more; what is longer than `LONGEST_S` is as long."""


def parse_bytes(value: object) -> object:
    """Turn '20 kb' or '1 mb' into bytes, as Flink does; leave the rest to the type check."""
    if isinstance(value, bool):
        raise ValueError("a size is a number with a unit, " + _NO_WORD)
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", value.lower())
    if match is None or match[2] not in _UNITS_BYTES:
        raise ValueError("give a whole number with a unit: b, kb or mb, such as '20 kb'")
    return int(match[1]) * _UNITS_BYTES[match[2]]


Size = Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)]
"""Bytes, zero or more."""


def parse_names(value: object) -> object:
    """Split 'a, b', as Spark passes options, into names; leave the rest to the type check."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]
"""Names, as a list or separated by commas."""


def _check_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    if len({name.lower() for name in names}) != len(names) or not all(names):
        raise ValueError("name each partition column once")
    return names


PartitionColumns = Annotated[Names, AfterValidator(_check_columns)]
"""Names of columns, each once, whatever its case."""


class Options(BaseModel):
    """A frozen group of options. Unknown keys are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("*", mode="before")
    @classmethod
    def _means_something(cls, value: object, info: ValidationInfo) -> object:
        """Refuse what would silently be taken for a value: nothing, or a boolean for a number."""
        field = cls.model_fields[str(info.field_name)]
        kinds = get_args(field.annotation) or (field.annotation,)
        if isinstance(value, bool) and int in kinds:
            raise ValueError("give a number, " + _NO_WORD)
        if isinstance(value, str) and not value.strip() and str in kinds and field.default != "":
            raise ValueError("it is empty: give at least 1 character, or leave the option out")
        return value

    @classmethod
    def parse(cls, options: Mapping[str, Any], where: str) -> Self:
        """Parse and validate `options`.

        Args:
            options: keys as the user wrote them.
            where: what the options belong to, for the error, such as "sink 'facts'".

        Raises:
            ConfigError: a key is unknown or missing, or its value is not allowed.
        """
        return cls.validated(options, where, {})

    @classmethod
    def validated(
        cls, options: Mapping[str, Any], where: str, written: Mapping[str, tuple[str, Any]]
    ) -> Self:
        """Validate `options` under our keys.

        Args:
            options: by our keys.
            where: as for `parse`.
            written: name and value as the user wrote them, by our key, where they differ.

        Raises:
            ConfigError: see `parse`.
        """
        try:
            return cls.model_validate(_with_words(cls, options))
        except ValidationError as error:
            raise ConfigError(_explain(cls, error, where, written)) from None

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that a user may set, as documented."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def other_keys(cls) -> list[str]:
        """Return keys that are accepted for the same options; for the hint at an unknown one."""
        return []


def in_words_of_user(text: str, written: Mapping[str, tuple[str, Any]]) -> str:
    """Return a text with each option under the name that the user gave it.

    Args:
        text: names options by our keys.
        written: see `Options.validated`.
    """
    for ours, (name, _) in written.items():
        text = re.sub(rf"(?<![\w.]){re.escape(ours)}(?!\.?\w)", name.replace("\\", r"\\"), text)
    return text


def _with_words(cls: type[Options], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the word in place of a boolean that only that word can mean."""
    fields = {key: field for name, field in cls.model_fields.items() for key in (name, field.alias)}
    given = dict(options)
    for key, value in options.items():
        if isinstance(value, bool) and key in fields:
            kinds = get_args(fields[key].annotation) or (fields[key].annotation,)
            enums: list[Any] = [kind for kind in kinds if isinstance(kind, EnumType)]
            members = {one.value for enum in enums for one in enum}
            words = [word for word in _YAML_WORDS[value] if word in members]
            if len(words) == 1 and bool not in kinds:
                given[key] = words[0]
    return given


def _explain(
    cls: type[Options],
    error: ValidationError,
    where: str,
    written: Mapping[str, tuple[str, Any]],
) -> str:
    problems = []
    for detail in error.errors(include_url=False, include_context=False):
        key = ".".join(str(part) for part in detail["loc"]) or "options"
        match detail["type"]:
            case "extra_forbidden":
                near = difflib.get_close_matches(key, [*cls.keys(), *cls.other_keys()], n=1)
                known = ", ".join(sorted(cls.keys()))
                hint = f"did you mean {near[0]!r}?" if near else f"known options: {known}."
                problems.append(f"{where}: unknown option {key!r}; {hint}")
            case "missing":
                problems.append(f"{where}: option {key!r} is required.")
            case kind:
                message = detail["msg"].removeprefix("Value error, ")
                if not detail["loc"]:  # of several options, which it names
                    problems.append(f"{where}: {in_words_of_user(message, written)}.")
                    continue
                value, hint = detail["input"], ""
                if isinstance(value, bool) and _NO_WORD not in message:
                    words = ", ".join(_YAML_WORDS[value])
                    hint = f" YAML reads a bare {words} as {value}: put the word in quotes."
                elif kind == "string_type" and value is not None:
                    message += ": quote it"
                message = in_words_of_user(message, written)
                name, value = written.get(key, (key, value))
                problems.append(
                    f"{where}: option {name!r} is {_shown(key, value)}: {message}.{hint}"
                )
    return " ".join(problems)


def _shown(key: str, value: object) -> str:
    """Return a value for a message, if none of it can be a secret."""
    match value:
        case str() | int() | float() if _OF_SECRET.search(key) and str(value).strip():
            return "not shown, it may be the secret: write where that is"
        case Mapping():
            return "a mapping"
        case list() | tuple() if any(isinstance(one, Mapping | list | tuple) for one in value):
            return "a list of several things"
        case _:
            return repr(value)
