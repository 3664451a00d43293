"""Checks the wheel and the sdist that `make package` has built.

    python -m harness.package dist

Each has one top-level package, `twophase`, with the sinks in it as files of their own, and what
else the product reads at run time. The description has no relative link: a package index has none
of the repository's files. The wheel is installed into a fresh environment that sees the
dependencies of this one; each sink is loaded there, and the command run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from pathlib import Path

PACKAGE = "twophase"
REQUIRED = (
    "__init__.py",
    "py.typed",
    "cli/log4j2.properties",
    "testing/services/kafka.sha256",
    "testing/sqlite_sink.py",
    "sinks/__init__.py",
    "sinks/mysql/sink.py",
)
"""Files that have to be in the package, in both distributions."""
SINKS = ("delta", "file", "hive", "iceberg", "kafka", "mysql", "paimon")
_RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]*)\)")
_LOAD = f"""
from importlib.metadata import entry_points
from pathlib import Path
import sys, {PACKAGE}

here = Path(sys.prefix).resolve()
assert here in Path({PACKAGE}.__file__).resolve().parents, {PACKAGE}.__file__
points = {{point.name: point for point in entry_points(group="{PACKAGE}.sinks")}}
assert tuple(sorted(points)) == {SINKS}, sorted(points)
for name, point in points.items():
    try:
        sink = point.load()
    except ModuleNotFoundError as error:
        assert (name, error.name) == ("paimon", "pypaimon")  # has an environment of its own
        continue
    file = Path(sys.modules[sink.__module__].__file__).resolve()
    assert here in file.parents, (name, file)
"""


class PackageError(Exception):
    """A distribution is not as it should be."""


def check(folder: Path) -> None:
    """Check the one wheel and the one sdist in a folder.

    Raises:
        PackageError: what is wrong with which of them.
    """
    wheel, sdist = _only(folder, "*.whl"), _only(folder, "*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    check_installed(wheel)


def check_wheel(wheel: Path) -> None:
    """One top-level package, complete."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = b"".join(
            archive.read(name) for name in names if name.endswith(".dist-info/METADATA")
        )
    top = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    if top != {PACKAGE}:
        raise PackageError(
            f"{wheel.name}: its top-level packages are {sorted(top)}, expected only {PACKAGE!r}"
        )
    _require(wheel, names)
    _check_description(wheel, metadata)


def check_sdist(sdist: Path) -> None:
    """The package, complete, as regular files, and no other package beside it."""
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
        metadata = _read(archive, f"{members[0].name.partition('/')[0]}/PKG-INFO")
    links = [member.name for member in members if not (member.isfile() or member.isdir())]
    if links:
        raise PackageError(f"{sdist.name}: not regular files: {links}")
    names = [member.name.partition("/")[2] for member in members]
    top = {name.partition("/")[0] for name in names if name.endswith(".py") and "/" in name}
    if top != {PACKAGE}:
        raise PackageError(
            f"{sdist.name}: its top-level packages are {sorted(top)}, expected only {PACKAGE!r}"
        )
    _require(sdist, names)
    _check_description(sdist, metadata)


def check_installed(wheel: Path) -> None:
    """Installed alone, the wheel has its sinks and its command."""
    with tempfile.TemporaryDirectory(prefix="twophase-package-") as path:
        fresh = Path(path) / "venv"
        venv.create(fresh, with_pip=True)
        python = fresh / "bin" / "python"
        _run(
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel.resolve()),
            cwd=path,
        )
        [site] = fresh.glob("lib/python*/site-packages")
        # A .pth adds the folder only: an editable twophase in it has a .pth of its own, which
        # is not read there.
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        _run(python, "-I", "-c", _LOAD, cwd=path)
        _run(fresh / "bin" / PACKAGE, "--help", cwd=path)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise PackageError(
            f"{folder} has {len(found)} files {pattern}, expected one: "
            f"{[path.name for path in found]}"
        )
    return found[0]


def _require(distribution: Path, names: Iterable[str]) -> None:
    missing = sorted({f"{PACKAGE}/{name}" for name in REQUIRED} - {*names})
    if missing:
        raise PackageError(f"{distribution.name}: these files are missing: {missing}")


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name) if name in archive.getnames() else None
    return file.read() if file else b""


def _check_description(distribution: Path, metadata: bytes) -> None:
    """Check the page that a package index shows: Markdown, not empty, each link absolute
    or within the page.
    """
    found = message_from_bytes(metadata)
    text = str(found.get_payload())
    if found.get("Description-Content-Type") != "text/markdown" or not text.strip():
        raise PackageError(f"{distribution.name}: its metadata has no description in Markdown")
    if links := _RELATIVE_LINK.findall(text):
        raise PackageError(
            f"{distribution.name}: its description has relative links, dead on a package index: "
            f"{links}"
        )


def _run(program: Path, *arguments: str, cwd: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(program), *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PackageError(
            f"{' '.join(command[:4])} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )


def main() -> None:
    """Entry point."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    try:
        check(folder)
    except PackageError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{folder}: the wheel and the sdist are complete, and the wheel runs\n")


if __name__ == "__main__":
    main()
