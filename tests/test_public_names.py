"""`import twophase` is cheap, and has every name that it promises."""

from __future__ import annotations

import subprocess
import sys

import pytest

import twophase


@pytest.mark.parametrize("name", twophase.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(twophase, name) is not None
    assert name in dir(twophase)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = twophase.nothing


def test_sparks_python_processes_do_not_import_the_drivers_half() -> None:
    program = "import sys, twophase.workers; print([name for name in ('pyspark', 'pyarrow') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
