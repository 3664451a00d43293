"""The files of an image, gathered from this machine: programs, and the shared libraries that
each of them loads.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from twophase.errors import ServiceError

LIBRARIES = "lib/image"
"""Where the libraries go: LD_LIBRARY_PATH names it in each Dockerfile."""

_LIBRARY = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x", re.MULTILINE)
_TOOLS = ("sh", "awk", "cat", "cp", "env", "ls", "mkdir")


class RootFolder:
    """The root folder of an image, with a shell and what an entry point script calls.

    Args:
        folder: made here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / LIBRARIES).mkdir(parents=True)
        (folder / "tmp").mkdir()
        for tool in _TOOLS:
            self.add_program(_found(tool), f"bin/{tool}")
        self._write("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
        self._write("etc/group", "root:x:0:\n")

    def add(self, source: Path, target: str, ignore: tuple[str, ...] = ()) -> None:
        """Copy a file or a folder, what links lead to instead of the links.

        Args:
            target: relative to the root folder.
            ignore: patterns of names that are left out.
        """
        into = self._folder / target
        into.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source,
                into,
                ignore=shutil.ignore_patterns(*ignore),
                ignore_dangling_symlinks=True,
                dirs_exist_ok=True,
            )
        else:
            shutil.copy2(source, into)

    def add_program(
        self, program: Path, target: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Copy a program and its libraries.

        Args:
            environment: in which it finds them here.
        """
        self.add(program, target)
        self.add_libraries(program, environment)

    def add_libraries(self, binary: Path, environment: Mapping[str, str] | None = None) -> None:
        """Copy the libraries that a program or a library loads, and the loader itself."""
        done = subprocess.run(
            ["ldd", str(binary)],
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        for match in _LIBRARY.finditer(done.stdout):
            path = Path(match["path"])
            # A program asks for the loader by its full path.
            self.add(
                path, f"{LIBRARIES}/{match['name']}" if match["name"] else str(path).lstrip("/")
            )

    def _write(self, target: str, text: str) -> None:
        file = self._folder / target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _found(tool: str) -> Path:
    path = shutil.which(tool)
    if path is None:
        raise ServiceError(f"`{tool}` is needed in the images, and is not on the PATH here.")
    return Path(path).resolve()
