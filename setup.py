"""Sets the long description: README.md with absolute links, since a package index has none of the
files they lead to.
"""

import re
from pathlib import Path

from setuptools import setup

_REPOSITORY = "https://github.com/twophase/twophase/blob/main/"
_RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)")

setup(
    long_description=_RELATIVE_LINK.sub(
        f"]({_REPOSITORY}", Path(__file__).with_name("README.md").read_text("utf-8")
    ),
    long_description_content_type="text/markdown",
)
