"""The cache of fetched servers: filled once, never half, and only with the expected files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from twophase.errors import ServiceError
from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import show_progress
from twophase.testing.services import debian, mariadb
from twophase.testing.services.__main__ import main
from twophase.testing.services.maven import (
    SETTINGS_VARIABLE,
    Coordinate,
    check_pins,
    fetch_jars,
)

BUILD_SLOWLY = """
import time
from pathlib import Path
from twophase.spark.startup.cache import cached
def build(folder):
    with open("built", "a") as log: log.write("x")
    time.sleep(0.5)
    (folder / "file").write_text("whole")
print((cached("thing-1", build) / "file").read_text())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOPHASE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_built_once() -> None:
    built: list[Path] = []
    assert cached("thing-1", built.append) == cached("thing-1", built.append)
    assert len(built) == 1


def test_a_failed_build_leaves_no_entry(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise ServiceError("no network")

    with pytest.raises(ServiceError, match="no network"):
        cached("thing-1", fail)
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_what_a_killed_build_left_is_removed(cache: Path) -> None:
    (cache / ".thing-1.partial-dead").mkdir(parents=True)
    cached("thing-1", lambda _: None)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["thing-1"]


def building(folder: Path) -> subprocess.Popen[str]:
    """Start a process that takes half a second to build an entry, in a folder."""
    return subprocess.Popen(
        [sys.executable, "-c", BUILD_SLOWLY],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(str(Path(__file__).parents[2])),
    )


def test_two_processes_build_an_entry_once_and_say_nothing_of_a_short_wait(tmp_path: Path) -> None:
    pair = [building(tmp_path), building(tmp_path)]
    assert [process.communicate() for process in pair] == [("whole\n", "")] * 2
    assert (tmp_path / "built").read_text() == "x"


def test_a_process_that_waits_long_for_another_one_says_so(cache: Path, tmp_path: Path) -> None:
    cache.mkdir()
    with (cache / ".thing-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = building(tmp_path)
        assert process.stderr is not None
        begun = process.stderr.readline()
    assert begun == f"Waiting for another process that fills {cache} ...\n"
    out, err = process.communicate()
    assert (out, err.startswith(f"Waiting for another process that fills {cache}: done in ")) == (
        "whole\n",
        True,
    )


def test_an_entry_that_is_not_whole_is_replaced() -> None:
    target = cached("thing-1", lambda folder: (folder / "damaged").touch())
    cached(
        "thing-1",
        lambda folder: (folder / "whole").touch(),
        lambda folder: (folder / "whole").exists(),
    )
    assert [path.name for path in target.iterdir()] == ["whole"]


def test_what_another_process_has_built_meanwhile_is_kept() -> None:
    target = cached("thing-1", lambda folder: (folder / "theirs").touch())
    looks = iter([False, True])
    assert cached("thing-1", lambda _: pytest.fail("built twice"), lambda _: next(looks)) == target
    assert (target / "theirs").exists()


def test_without_apt_the_error_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceError, match=r"no mariadbd here.*apt-get install -y mariadb-server"):
        cached("mariadb", mariadb.fetch_packages)


def environment(root: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": root}


def test_a_changed_missing_or_foreign_jar_is_refused(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    pins = {"a.jar": hashlib.sha256(b"a").hexdigest()}
    check_pins(jars, pins)
    for wrong in ({"a.jar": hashlib.sha256(b"b").hexdigest()}, {**pins, "b.jar": "0"}, {}):
        with pytest.raises(ServiceError, match="not the expected ones"):
            check_pins(jars, wrong)


def test_jars_that_were_not_the_expected_ones_are_fetched_again() -> None:
    answers = iter([b"half", b"whole"])

    def fetch(folder: Path) -> None:
        (folder / "a.jar").write_bytes(next(answers))
        check_pins(folder, {"a.jar": hashlib.sha256(b"whole").hexdigest()})

    with pytest.raises(ServiceError, match=r"changed \['a\.jar'\].*Next: fetch again"):
        cached("jars", fetch)
    assert (cached("jars", fetch) / "a.jar").read_bytes() == b"whole"


APT = """#!/bin/sh
for word; do last=$word; done
case "$*" in
  *update) test -z "$UPDATES" || touch "$LISTS" ;;
  "install -y "*) touch "$LIBRARY" ;;
  *--simulate*) test -e "$LISTS" && echo "Inst $last (1.0 Debian:13)" ;;
  *) test -e "$LISTS" ;;
esac
"""


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system whose package lists are absent, and that reaches no mirror until UPDATES is set."""
    for name, text in (("apt-get", APT), ("dpkg", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in ("LISTS", "LIBRARY"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


LDD = """#!/bin/sh
test -e "$LIBRARY" || echo "	libnuma.so.1 => not found"
"""


def test_a_library_that_cannot_be_fetched_is_installed_with_the_command_that_is_named(
    apt: Path, tmp_path: Path
) -> None:
    (apt / "ldd").write_text(LDD)
    (apt / "ldd").chmod(0o755)
    program, packages = tmp_path / "mysqld", {"libnuma.so.1": ["libnuma1"]}
    with pytest.raises(ServiceError, match=r"needs the shared libraries libnuma\.so\.1") as caught:
        debian.with_libraries(program, packages)
    [command] = re.findall("`(.+)`", caught.value.remedy)
    subprocess.run(shlex.split(command), check=True)
    assert debian.with_libraries(program, packages) == {}


def unpack(into: Path) -> None:
    with show_progress("Fetching libnuma1") as progress:
        debian.unpack_packages(["libnuma1"], into, progress)


def list_dependencies(_: Path) -> None:
    assert debian.with_dependencies("libnuma1") == ["libnuma1"]


@pytest.mark.parametrize("fetch", [unpack, list_dependencies])
def test_packages_that_apt_does_not_know_are_found_after_an_update(
    apt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fetch: Callable[[Path], object]
) -> None:
    with pytest.raises(ServiceError) as caught:
        fetch(tmp_path)
    [command] = re.findall("run `(.+)`", caught.value.remedy)
    monkeypatch.setenv("UPDATES", "true")
    subprocess.run(shlex.split(command), check=True)
    fetch(tmp_path)


def test_jars_come_from_the_mirror_that_the_settings_of_ivy_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, jar = tmp_path / "mirror" / "shop" / "client" / "1.0", b"a jar"
    mirror.mkdir(parents=True)
    (mirror / "client-1.0.jar").write_bytes(jar)
    (mirror / "client-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>shop</groupId>"
        "<artifactId>client</artifactId><version>1.0</version></project>"
    )
    settings = tmp_path / "ivysettings.xml"

    def fetch(root: str) -> None:
        settings.write_text(
            '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
            f'<ibiblio name="mirror" m2compatible="true" root="{root}"/></resolvers></ivysettings>'
        )
        monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
        pins = {"client-1.0.jar": hashlib.sha256(jar).hexdigest()}
        with show_progress("Fetching jars") as progress:
            fetch_jars(
                [Coordinate("shop", "client", "1.0", transitive=False)],
                tmp_path / "jars",
                pins=pins,
                progress=progress,
            )

    with pytest.raises(ServiceError, match="Ivy could not fetch the jars") as caught:
        fetch("http://127.0.0.1:1/")
    assert f"name an ivysettings.xml in {SETTINGS_VARIABLE}" in caught.value.remedy
    fetch(f"{(tmp_path / 'mirror').as_uri()}/")
    assert (tmp_path / "jars" / "client-1.0.jar").read_bytes() == jar


def test_versions_says_what_is_not_fetched() -> None:
    result = CliRunner().invoke(main, ["versions"])
    assert result.exit_code == 0
    assert result.output.count("not fetched") == 5
