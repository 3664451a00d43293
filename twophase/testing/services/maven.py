"""Fetches jars by Maven coordinates with the Ivy that comes with pyspark: it needs only Java."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from twophase.errors import ServiceError
from twophase.spark.startup.java import SHORT_LIVED, java, pyspark_jars
from twophase.spark.startup.progress import Progress

SETTINGS_VARIABLE = "TWOPHASE_IVY_SETTINGS"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_KEPT_LINES = 25


@dataclass(frozen=True)
class Coordinate:
    """One Maven artifact.

    Attributes:
        transitive: its dependencies are fetched too.
        classifiers: of its jars, "" for the one without; all of them are fetched.
    """

    group: str
    artifact: str
    version: str
    transitive: bool = True
    classifiers: tuple[str, ...] = ("",)


def fetch_jars(
    coordinates: Sequence[Coordinate], into: Path, *, pins: Mapping[str, str], progress: Progress
) -> None:
    """Put the jars of `coordinates` into the folder `into`.

    Args:
        pins: SHA-256 of every expected jar, by its file name: a missing, unexpected or
            changed one is an error.
    """
    into.mkdir(parents=True, exist_ok=True)
    # A separate Ivy home: a partly filled local Maven repository of the user makes Ivy fail.
    with tempfile.TemporaryDirectory(prefix="twophase-ivy-", dir=into.parent) as home:
        module = Path(home) / "ivy.xml"
        module.write_text(_module(coordinates))
        command = [
            java(),
            *SHORT_LIVED,
            f"-Divy.default.ivy.user.dir={home}",
            "-cp",
            f"{pyspark_jars()}/*",
        ]
        command += ["org.apache.ivy.Main", "-cache", f"{home}/cache", "-ivy", str(module)]
        command += ["-types", "jar", "bundle", "-retrieve", f"{into}/{_PATTERN}"]
        settings = os.environ.get(SETTINGS_VARIABLE)
        if settings:
            command += ["-settings", settings]
        _run_ivy(command, progress)
    check_pins(into, pins)


def check_pins(folder: Path, pins: Mapping[str, str]) -> None:
    """Compare the files of a folder with the expected names and SHA-256 sums."""
    found = {path.name: _sha256(path) for path in folder.iterdir()}
    if found == pins:
        return
    wrong = sorted(name for name in found.keys() & pins.keys() if found[name] != pins[name])
    missing, foreign = sorted(pins.keys() - found.keys()), sorted(found.keys() - pins.keys())
    raise ServiceError(
        f"The fetched jars are not the expected ones: changed {wrong}, missing {missing}, "
        f"unexpected {foreign}.",
        remedy="fetch again; if it stays so, the repository or mirror in use serves other files: "
        "do not run them.",
    )


def _module(coordinates: Sequence[Coordinate]) -> str:
    lines = ['<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">']
    lines += ['<info organisation="twophase" module="services"/>']
    lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
    for item in coordinates:
        named = (
            f"org={quoteattr(item.group)} name={quoteattr(item.artifact)} "
            f"rev={quoteattr(item.version)}"
        )
        transitive = "true" if item.transitive else "false"
        lines.append(f'<dependency {named} conf="default->default" transitive="{transitive}">')
        if item.classifiers != ("",):
            lines += [_artifact(item, classifier) for classifier in item.classifiers]
        lines.append("</dependency>")
    return "\n".join([*lines, "</dependencies>", "</ivy-module>"])


def _artifact(item: Coordinate, classifier: str) -> str:
    named = f" m:classifier={quoteattr(classifier)}" if classifier else ""
    return f'<artifact name={quoteattr(item.artifact)} type="jar" ext="jar"{named}/>'


def _run_ivy(command: Sequence[str], progress: Progress) -> None:
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    found = fetched = 0
    with subprocess.Popen(
        list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        try:
            for line in ivy.stdout or ():
                if line.strip(" .\n"):
                    last.append(line.rstrip())
                found += "\tfound " in line
                fetched += "[SUCCESSFUL ]" in line
                progress.update(f"{found} modules found, {fetched} jars fetched")
        except BaseException:
            ivy.kill()  # or it would write into a folder that is being removed
            raise
    if ivy.returncode != 0:
        raise ServiceError(
            f"Ivy could not fetch the jars (exit code {ivy.returncode}). Its last lines:\n"
            + "\n".join(last)
            + "\n",
            remedy="check the network; for a mirror or proxy name an "
            f"ivysettings.xml in {SETTINGS_VARIABLE}.",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
