"""Rules of the product that are taken out of the code of one function, so that a test of the rule
goes red for the reason it should.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.outcomes import Failed


@dataclass(frozen=True)
class Mutant:
    """A rule that is broken.

    Attributes:
        rule: what no longer holds.
        function: whose code has it.
        old: its text there, once.
        new: what it becomes.
        test: finds it, of what it is given.
        red: what the failure says.
    """

    rule: str
    function: FunctionType | Callable[..., Any]
    old: str
    new: str
    test: Callable[[Any], object]
    red: str

    def __post_init__(self) -> None:
        """A rule that is not there any more is found where the tests are collected."""
        self.code()

    def __str__(self) -> str:
        return self.rule

    def code(self) -> CodeType:
        """The code of the function without the rule."""
        found = inspect.getsource(self.function)
        assert found.count(self.old) == 1, f"{self.rule}: the text is there {found.count(self.old)}"
        text = textwrap.dedent(found.replace(self.old, self.new))
        module = compile(f"from __future__ import annotations\n{text}", __file__, "exec")
        name = self.function.__name__
        [code] = [c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == name]
        return code

    def is_found(self, given: object) -> None:
        """Break the rule, and check that its test says so."""
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(self.function, "__code__", self.code())
            with pytest.raises((Exception, Failed), match=self.red):
                self.test(given)
