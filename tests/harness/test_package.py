"""What `make package` finds wrong with a wheel or an sdist."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.package import PACKAGE, REQUIRED, PackageError, check, check_sdist, check_wheel

COMPLETE = [f"{PACKAGE}/{name}" for name in REQUIRED]
INFO = f"{PACKAGE}-0.1.0.dist-info/METADATA"


def wheel(folder: Path, names: Iterable[str]) -> Path:
    path = folder / f"{PACKAGE}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def sdist(folder: Path, names: Iterable[str], link: str = "") -> Path:
    path = folder / f"{PACKAGE}-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"{PACKAGE}-0.1.0/{name}"), io.BytesIO())
        if link:
            entry = tarfile.TarInfo(f"{PACKAGE}-0.1.0/{link}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "../sinks"
            archive.addfile(entry)
    return path


def test_what_is_complete_is_accepted(tmp_path: Path) -> None:
    check_wheel(wheel(tmp_path, [*COMPLETE, INFO]))
    check_sdist(sdist(tmp_path, [*COMPLETE, "README.md", "setup.cfg"]))


@pytest.mark.parametrize("missing", COMPLETE)
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    names = [name for name in COMPLETE if name != missing]
    with pytest.raises(PackageError, match=rf"\.whl: these files are missing: \['{missing}'\]"):
        check_wheel(wheel(tmp_path, names))
    with pytest.raises(PackageError, match=rf"\.tar\.gz: these files are missing: \['{missing}'\]"):
        check_sdist(sdist(tmp_path, names))


def test_another_top_level_package_is_named(tmp_path: Path) -> None:
    names = [*COMPLETE, "tests/test_config.py"]
    with pytest.raises(PackageError, match="'tests', 'twophase'"):
        check_wheel(wheel(tmp_path, names))
    with pytest.raises(PackageError, match="'tests', 'twophase'"):
        check_sdist(sdist(tmp_path, names))


def test_sinks_that_are_a_link_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="not regular files"):
        check_sdist(sdist(tmp_path, COMPLETE, link=f"{PACKAGE}/more"))


def test_a_folder_has_one_of_each(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"has 0 files \*\.whl, expected one"):
        check(tmp_path)
    wheel(tmp_path, COMPLETE).rename(tmp_path / f"{PACKAGE}-0.0.9-py3-none-any.whl")
    wheel(tmp_path, COMPLETE)
    with pytest.raises(PackageError, match="has 2 files"):
        check(tmp_path)
