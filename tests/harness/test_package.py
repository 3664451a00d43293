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


DESCRIPTION = """Metadata-Version: 2.4
Name: twophase
Description-Content-Type: text/markdown

[Limits](https://example.com/docs/limits.md), [above](#limits)
"""


def wheel(folder: Path, names: Iterable[str], description: str = DESCRIPTION) -> Path:
    path = folder / f"{PACKAGE}-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr(INFO, description)
    return path


def sdist(
    folder: Path, names: Iterable[str], link: str = "", description: str = DESCRIPTION
) -> Path:
    path = folder / f"{PACKAGE}-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"{PACKAGE}-0.1.0/{name}"), io.BytesIO())
        info = tarfile.TarInfo(f"{PACKAGE}-0.1.0/PKG-INFO")
        info.size = len(description)
        archive.addfile(info, io.BytesIO(description.encode()))
        if link:
            entry = tarfile.TarInfo(f"{PACKAGE}-0.1.0/{link}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "../sinks"
            archive.addfile(entry)
    return path


def test_what_is_complete_is_accepted(tmp_path: Path) -> None:
    check_wheel(wheel(tmp_path, COMPLETE))
    check_sdist(sdist(tmp_path, [*COMPLETE, "README.md", "setup.cfg"]))


@pytest.mark.parametrize("missing", COMPLETE)
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    names = [name for name in COMPLETE if name != missing]
    with pytest.raises(PackageError, match=rf"\.whl: these files are missing: \['{missing}'\]"):
        check_wheel(wheel(tmp_path, names))
    with pytest.raises(PackageError, match=rf"\.tar\.gz: these files are missing: \['{missing}'\]"):
        check_sdist(sdist(tmp_path, names))


@pytest.mark.parametrize(
    ("description", "error"),
    [
        (
            DESCRIPTION.replace("https://example.com/", ""),
            r"relative links, .*: \['docs/limits\.md'\]",
        ),
        (DESCRIPTION.replace("text/markdown", "text/plain"), "no description in Markdown"),
        (DESCRIPTION.partition("\n\n")[0] + "\n\n", "no description in Markdown"),
    ],
    ids=["a relative link", "not Markdown", "empty"],
)
def test_a_page_that_a_package_index_cannot_show_is_named(
    tmp_path: Path, description: str, error: str
) -> None:
    with pytest.raises(PackageError, match=rf"\.whl: .*{error}"):
        check_wheel(wheel(tmp_path, COMPLETE, description))
    with pytest.raises(PackageError, match=rf"\.tar\.gz: .*{error}"):
        check_sdist(sdist(tmp_path, COMPLETE, description=description))


def test_another_top_level_package_is_named(tmp_path: Path) -> None:
    names = [*COMPLETE, "tests/options/test_config.py"]
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
