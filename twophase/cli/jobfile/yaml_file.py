"""Reads a small YAML file: plain values only, no tags, no duplicate keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from twophase.errors import ConfigError

_MAX_BYTES = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice; PyYAML would silently keep the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """See `Composer.compose_mapping_node`. What `<<` merges in may be overridden."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return node


def read_yaml(path: Path) -> Any:
    """Return the content of `path`.

    Raises:
        ConfigError: it cannot be read, or is not such YAML. The text of the file is not repeated:
            it may hold a secret.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"Cannot read {path}: {error.strerror}.", remedy="name a file that exists."
        ) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than {_MAX_BYTES:,} bytes.", remedy="name a job file.")
    try:
        return yaml.load(data, Loader=_Loader)  # noqa: S506 a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is not UTF-8 text"
        raise ConfigError(
            f"{path} is not valid YAML{place}: {problem}.", remedy="correct it there."
        ) from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"Cannot parse {path}: {type(error).__name__}.", remedy="simplify it."
        ) from None
