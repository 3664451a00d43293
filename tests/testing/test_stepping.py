"""Which lines of a sink the contract suite stops it at."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from twophase.ids import Attempt
from twophase.sinks.common.staging.names import fence_name
from twophase.testing.contract.stepping import Lines


class Owner:
    """A sink with a method of one line, and one more in another folder."""

    def commit(self) -> None:
        fence_name(Attempt(1, 0))


def counted(packages: Sequence[str]) -> int:
    owner = Owner()
    with Lines(owner, "commit", packages=packages) as lines:
        owner.commit()
    return lines.count


def test_lines_of_the_sink_s_folder_and_of_named_packages_count() -> None:
    assert counted(()) == 1
    assert counted(["twophase.sinks.common.staging"]) == 2


@pytest.mark.parametrize("name", ["twophase.sinks.common.staging.names", "twophase.nothing"])
def test_a_name_that_is_not_of_a_package_is_named(name: str) -> None:
    named = f"{name}, which the suite names, is not a package"
    with pytest.raises(ModuleNotFoundError, match=named):
        counted([name])
