"""Exports that a package imports when they are first used (PEP 562).

Spark's Python workers import submodules, and with each of them its package: the package must not
import the rest of itself. A package states its names in one table, and once more as imports that
only a type checker reads: `from module import Name as Name`.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

_OURS = "twophase"


def export(package: str, names: Mapping[str, Sequence[str]], extra: str = "") -> None:
    """Give a package its `__all__`, and the functions that import a name of it on first use.

    A name whose module needs what is not installed is a `PreflightError` that says what to install.

    Args:
        package: its `__name__`.
        names: by the module that has them.
        extra: of twophase, with what the package needs.
    """
    namespace = vars(sys.modules[package])
    homes = {name: module for module, own in names.items() for name in own}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            namespace[name] = found = getattr(import_module(homes[name]), name)
        except ImportError as error:
            import_module("twophase.internals.pyspark_version").check_pyspark()
            needed = (error.name or _OURS).partition(".")[0]
            if not extra or needed == _OURS:
                raise
            raise import_module("twophase.errors").PreflightError(
                f"{package} needs {needed}, which {sys.executable} does not have.",
                remedy=f"run: {shlex.quote(sys.executable)} -m pip install 'twophase[{extra}]'",
            ) from error
        return found

    def listed() -> list[str]:
        return sorted({*namespace, *homes})

    namespace.update(__all__=sorted(homes), __getattr__=get, __dir__=listed)
