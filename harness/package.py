"""Checks the wheel and the sdist that `make package` has built.

    python -m harness.package dist

Each has one top-level package, `twophase`, with the sinks in it as files of their own, and what
else the product reads at run time. The description has no relative link: a package index has none
of the repository's files. The wheel is installed into a fresh environment that has PySpark, as a
platform brings it, and what the wheel asks for; a job and the command run there, and each sink is
loaded with what its extra adds, or names the extra that it lacks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
EXTRAS = {
    "mysql": "mysql",
    "kafka": "kafka",
    "iceberg": "iceberg",
    "delta": "",
    "file": "",
    "hive": "",
}
"""The extra that each sink needs; Paimon's has an environment of its own."""
_RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)]*)\)")
_HERE = f"""
import sys, {PACKAGE}
from pathlib import Path

here = Path(sys.prefix).resolve()
assert here in Path({PACKAGE}.__file__).resolve().parents, {PACKAGE}.__file__
"""
_LOAD = f"""{_HERE}
from {PACKAGE}.errors import ConfigError
from {PACKAGE}.internals.sink_entry_points import load_sink, sink_names

assert sink_names() == {sorted([*EXTRAS, "paimon"])}, sink_names()
[extra] = sys.argv[1:]
for name, needed in {EXTRAS}.items():
    try:
        sink = load_sink("here", name)
    except ConfigError as error:
        assert needed not in ("", extra), error
        assert error.remedy == f"run: {{sys.executable}} -m pip install '{PACKAGE}[{{name}}]'"
        continue
    assert extra or not needed, f"{{name}} needs no extra {{needed}}"
    file = Path(sys.modules[sink.__module__].__file__).resolve()
    assert here in file.parents, (name, file)
"""
_RUN = f"""{_HERE}
from pyspark.sql import SparkSession

folder = Path.cwd()
(folder / "orders").mkdir()
(folder / "orders" / "1.json").write_text('{{"id": 1}}\\n')
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
orders = spark.readStream.schema("id long").json(str(folder / "orders"))
writer = {PACKAGE}.write_stream(orders, name="orders").sink("out", "file", path=str(folder / "out"))
writer = writer.option("checkpointLocation", str(folder / "job")).trigger(availableNow=True)
writer.start().await_termination()
assert [row.id for row in spark.read.parquet(str(folder / "out")).collect()] == [1]
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
    """A platform's PySpark and what the wheel asks for are enough for a job and the command; with
    what an extra adds its sink is there too.
    """
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        asked = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    with tempfile.TemporaryDirectory(prefix="twophase-package-") as path:
        for extra in dict.fromkeys(EXTRAS.values()):
            python = _installed(wheel, Path(path) / f"with-{extra}", asked, extra)
            _run(python, "-I", "-c", _LOAD, extra, cwd=path)
            if not extra:
                _run(python, "-I", "-c", _RUN, cwd=path)
                _run(python.with_name(PACKAGE), "--help", cwd=path)


def _installed(wheel: Path, folder: Path, asked: Iterable[str], extra: str) -> Path:
    """Return the Python of a new environment with the wheel, one of its extras, and PySpark."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel.resolve()),
        cwd=str(folder),
    )
    [site] = folder.glob("lib/python*/site-packages")
    for entry in _entries(["pyspark", *asked], extra):
        if not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return python


def _entries(asked: Iterable[str], extra: str) -> set[Path]:
    """Return the files and folders of distributions, and of those that they ask for in turn, in
    the `site-packages` of this environment.
    """
    waiting = [(Requirement(one), extra) for one in asked]
    seen: set[tuple[str, str]] = set()
    found: set[Path] = set()
    while waiting:
        requirement, given = waiting.pop()
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": given}):
            continue
        one = distribution(requirement.name)
        tops = {file.parts[0] for file in one.files or () if file.parts[0] != ".."}
        found |= {Path(str(one.locate_file(top))) for top in tops if top != "__pycache__"}
        for wanted in ("", *sorted(requirement.extras)):
            if (key := (canonicalize_name(requirement.name), wanted)) not in seen:
                seen.add(key)
                waiting += [(Requirement(text), wanted) for text in one.requires or ()]
    return found


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
