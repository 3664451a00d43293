"""Debian packages unpacked into the cache, without root: the system stays untouched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import Progress, show_progress

_MISSING_LIBRARY = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def with_libraries(program: Path, packages: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the environment in which a program finds its shared libraries.

    Libraries the system lacks are taken from Debian's packages.

    Args:
        packages: library name to the names its package has had, for libraries that
            a system may lack.
    """
    missing = missing_libraries(program, {})
    if not missing:
        return {}
    if missing <= packages.keys():
        names = sorted(missing)
        folder = cached(
            "debian-" + "-".join(names), lambda into: _fetch_libraries(names, packages, into)
        )
        environment = library_path(folder)
        missing = missing_libraries(program, environment)
        if not missing:
            return environment
    raise _libraries_needed(program.name, sorted(missing), packages)


def library_path(folder: Path) -> dict[str, str]:
    """Return the environment that makes a program use the unpacked shared libraries first."""
    folders = sorted({str(path.parent) for path in folder.rglob("*.so*")})
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join([*folders, *([inherited] if inherited else [])])}


def missing_libraries(program: Path, environment: Mapping[str, str]) -> set[str]:
    """Return the names of the shared libraries that the loader would not find."""
    try:
        done = subprocess.run(
            ["ldd", str(program)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return set()  # no ldd here: starting the program will tell
    return set(_MISSING_LIBRARY.findall(done.stdout))


def unpack_packages(packages: Sequence[str], into: Path, progress: Progress) -> None:
    """Download packages with apt, which checks their signatures, and unpack them into a folder."""
    with tempfile.TemporaryDirectory(prefix="apt-", dir=into) as scratch:
        progress.update(f"downloading {', '.join(packages)}")
        done = _apt(["download", *packages], Path(scratch))
        if done.returncode != 0:  # the package lists are absent or old
            raise ServiceError(
                f"apt-get could not download {', '.join(packages)}:\n{done.stdout}{done.stderr}",
                remedy="run `apt-get update`, then fetch again.",
            )
        for package in Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(into)], check=True)


def with_dependencies(package: str) -> list[str]:
    """Return the package and those of its dependencies that this system lacks."""
    with tempfile.TemporaryDirectory(prefix="twophase-apt-") as scratch:
        done = _apt(["install", "--simulate", "--no-install-recommends", package], Path(scratch))
    if done.returncode != 0:
        raise ServiceError(
            f"apt-get does not know {package}:\n{done.stdout}{done.stderr}",
            remedy="run `apt-get update` first.",
        )
    return re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)


def _apt(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run apt-get in a folder; if its package lists are absent or old, with fresh ones."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ServiceError(
            f"`apt-get {' '.join(arguments)}` is needed, but this system has no apt-get and dpkg."
        )
    command = ["apt-get", "-o", "APT::Sandbox::User="]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return done
    for name in ("lists/partial", "archives/partial"):
        (folder / "apt" / name).mkdir(parents=True)
    command += [
        "-o",
        f"Dir::State::lists={folder / 'apt' / 'lists'}",
        "-o",
        f"Dir::Cache={folder / 'apt'}",
    ]
    subprocess.run([*command, "update"], cwd=folder, capture_output=True, check=False)
    return subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def _fetch_libraries(
    names: Sequence[str], packages: Mapping[str, Sequence[str]], into: Path
) -> None:
    with show_progress(f"Fetching {', '.join(names)}") as progress:
        for name in names:
            _fetch_library(name, packages[name], into, progress)


def _fetch_library(name: str, candidates: Sequence[str], into: Path, progress: Progress) -> None:
    for package in candidates:
        try:
            unpack_packages([package], into, progress)
        except ServiceError:
            continue
        # Debian 13 renamed the files of some libraries
        renamed = next(into.rglob(f"{name}t64*"), None)
        if renamed is not None:
            (renamed.parent / name).symlink_to(renamed.name)
        return
    raise _libraries_needed("The server", [name], {name: candidates})


def _libraries_needed(
    program: str, names: Sequence[str], packages: Mapping[str, Sequence[str]]
) -> ServiceError:
    wanted = " ".join(packages[name][0] for name in names if name in packages)
    return ServiceError(
        f"{program} needs the shared libraries {', '.join(names)}, which this system lacks.",
        remedy=f"install them as root, on Debian with `apt-get install -y {wanted or '...'}`.",
    )
