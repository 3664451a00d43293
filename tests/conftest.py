"""Property tests: the same examples in every run; `HYPOTHESIS_PROFILE=explore`
looks for new ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from twophase import seal

settings.register_profile("default", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="module")
def worker() -> Iterator[None]:
    """This process is a Python worker whose driver, this process too, has given it a key
    to seal errors with.
    """
    environment: dict[str, str] = {}
    seal.share_key(environment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(seal.VARIABLE, environment[seal.VARIABLE])
        yield
